"""Jobs on the main node: looked up, listed, changed by the table of states, waited for. Everything is in the store."""

from __future__ import annotations

import asyncio
import copy
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from monkey import states
from monkey.errors import UsageProblem
from monkey.names import NICKNAMES, did_you_mean, is_nickname, juid_for, nickname_for
from monkey.states import State
from monkey.store import BaseStore, Change

Job = dict[str, Any]
_HISTORY_KEPT = 200
# Not for listings: as large as a requirements file, and of the scheduler's own.
_INTERNAL = ("handed", "outcome", "on_host", "order")


def now() -> datetime.datetime:
    """The time, as records hold it."""
    return datetime.datetime.now(datetime.UTC)


def iso(moment: datetime.datetime | float) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    if isinstance(moment, (int, float)):
        moment = datetime.datetime.fromtimestamp(moment, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class UnknownJob(UsageProblem):
    """No job has this JUID or nickname."""

    missing = True


class JobBook:
    """The jobs of a main node.

    Args:
        store: where they are kept; the only writer.
        on_change: called with the job after each recorded change.

    Attributes:
        progress: bytes sent and to be sent, of jobs that are on their way to a host.
        why_waits: reason code and sentence of a queued job that waits; the scheduler's knowledge of now.
    """

    def __init__(self, store: BaseStore, on_change: Callable[[Job], None] | None = None) -> None:
        self._store = store
        self._on_change = on_change
        self._changed: dict[str, asyncio.Event] = {}
        self._staged: dict[str, Job] | None = None
        self.progress: dict[str, dict[str, int]] = {}
        self.why_waits: Callable[[Job], tuple[str, str] | None] = lambda job: None

    def get(self, juid: str) -> Job:
        """The record of a job.

        Raises:
            UnknownJob: there is none.
        """
        found = self.known(juid)
        if found is None:
            raise UnknownJob("job", f"no job {juid}; `monkey list jobs` shows those there are")
        return found

    def known(self, juid: str) -> Job | None:
        """The record of a job, or None."""
        if self._staged is not None and juid in self._staged:
            return copy.deepcopy(self._staged[juid])
        return self._store.get("jobs", juid)

    def state_of(self, juid: str) -> State | None:
        """The state of a job, or None when there is none of this JUID."""
        found = self.known(juid)
        return State(found["state"]) if found else None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Changes made in this block are recorded in one piece: all or, when it raises, none; a crash splits none."""
        if self._staged is not None:
            yield
            return
        self._staged = {}
        try:
            yield
            changed = self._staged
        finally:
            staged, self._staged = self._staged, None
        self._store.commit([Change.put("jobs", juid, job) for juid, job in changed.items()])
        for job in staged.values():
            self._tell(job)

    def find(self, which: str) -> Job:
        """The job of a JUID or nickname as the API shows it; the newest match wins."""
        found = self._store.get("jobs", which)
        if found is None and is_nickname(which):
            juid = self._store.latest_by_nickname(which)
            found = self._store.get("jobs", juid) if juid else None
        if found is None:
            newest = itertools.islice(self._store.iter_jobs(newest_first=True), 200)
            known = [name for job in newest for name in (job["juid"], job["nickname"])]
            hint = did_you_mean(which, known) or "; `monkey list jobs` shows those there are"
            raise UnknownJob("job", f"no job {which[:80]!r}{hint}")
        return self.view(found)

    def named(self, which: str) -> Job | None:
        """The job of a JUID or nickname, else the newest of this name; None when there is none."""
        found = self.known(which)
        if found is None and is_nickname(which):
            juid = self._store.latest_by_nickname(which)
            found = self.known(juid) if juid else None
        if found is None:
            found = next(self._store.iter_jobs(newest_first=True, name=which), None)
        return found

    def view(self, job: Job) -> Job:
        """A job as the API and ``--json`` show it."""
        shown = {key: value for key, value in job.items() if key not in _INTERNAL}
        why = self.why_waits(job) if job["state"] == State.QUEUED else None
        if why:
            shown["reason"], shown["message"] = why
        shown["run"] = {key: value for key, value in job["run"].items() if key != "env_content"}
        shown["progress"] = self.progress.get(job["juid"])
        return shown

    def is_over(self, job: Job) -> bool:
        """Whether its state is final."""
        return State(job["state"]) in states.TERMINAL

    def in_states(self, *wanted: State) -> Iterator[Job]:
        """Jobs in any of the states as they are at the call, oldest first within each state."""
        return (self.get(juid) for juid in self._store.by_state(*(str(state) for state in wanted)))

    def on_hosts(self) -> Iterator[Job]:
        """Jobs of which something is still on a host."""
        return (self.get(juid) for juid in self._store.on_host())

    def newest(self, limit: int) -> list[Job]:
        """The newest jobs, oldest of them first."""
        return list(itertools.islice(self._store.iter_jobs(newest_first=True), limit))[::-1]

    def listing(
        self, *, state: str | None, provider: str | None, name: str | None, limit: int | None
    ) -> list[Job]:
        """Jobs as the API shows them, oldest first; ``limit`` keeps the newest."""
        wanted = states.parse_filter(state, "state") if state else None
        if limit is not None and limit < 0:
            raise UsageProblem("limit", "expected a number that is not negative")
        words = None if wanted is None else [str(one) for one in wanted]
        jobs = self._store.iter_jobs(newest_first=True, states=words, name=name or None, provider=provider or None)
        found = [self.view(job) for job in itertools.islice(jobs, limit)]
        return found[::-1]

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return {str(state): count for state, count in self._store.counts().items() if count}

    def of_key(self, key: str | None) -> Job | None:
        """The job that was handed in with an idempotency key, or None."""
        earlier = self._store.get("idempotency", key) if key else None
        return self.get(earlier["juid"]) if earlier else None

    def add(self, fields: Job, key: str | None) -> Job:
        """Record a new job; it is on disk when this returns.

        Args:
            fields: what was submitted.
            key: idempotency key: the same key again gives the job that the first call made.
        """
        earlier = self.of_key(key)
        if earlier:
            return earlier
        moment = now()
        day = moment.astimezone().date()
        with self._store.transaction() as record:
            juid = juid_for(day, record.next_number(f"{day:%y-%m-%d}"))
            made = self._store.count_jobs()
            live = sum(count for state, count in self._store.counts().items() if State(state) not in states.TERMINAL)
            # When every word is taken by a live job, there is none to look for.
            nickname = nickname_for(made, self._store.nickname_is_live if live < len(NICKNAMES) else None)
            job = _new({**fields, "order": made}, juid, nickname, moment)
            record.put("jobs", juid, job)
            if key:
                record.put("idempotency", key, {"juid": juid})
        self._tell(job)
        return job

    def change(
        self,
        juid: str,
        state: State | None = None,
        reason: states.Reason | str | None = None,
        message: str | None = None,
        *,
        reset: bool = False,
        **fields: Any,
    ) -> Job:
        """Record a change of a job; checked against the table of states, on disk when this (or `together`) returns.

        Args:
            juid: the job.
            state: new state, or None to keep it.
            reason: its code; its sentence stands unless ``message`` is given.
            reset: the user puts a job that has ended back into the queue.
            fields: further fields of the record; ``on_host`` is also kept with the attempt.

        Raises:
            IllegalChange: the table does not list it.
        """
        job = self.get(juid)
        if state is not None:
            job["state"] = str(states.check_change(job["state"], state, reset=reset))
            if state in states.TERMINAL:
                job["finished_at"] = job.get("finished_at") or iso(now())
                self.progress.pop(juid, None)
        if reason is not None:
            job["reason"] = str(reason)
            job["message"] = message or states.sentence(reason, juid, job["provider"])
        job.update(fields)
        job["revision"] += 1
        if reason is not None:
            job["history"] = [*job["history"], _entry(job)][-_HISTORY_KEPT:]
        _keep_attempt(job, "on_host" in fields)
        if self._staged is not None:
            self._staged[juid] = copy.deepcopy(job)
            return job
        self._store.put("jobs", juid, job)
        self._tell(job)
        return job

    def cleared(self, juid: str, numbers: Iterable[int]) -> None:
        """Nothing of these attempts is on their hosts any more."""
        job = self.get(juid)
        for entry in job["attempts"]:
            if entry["attempt"] in numbers:
                entry["on_host"] = False
        left = any(entry.get("on_host") for entry in job["attempts"])
        job.update(on_host=left, revision=job["revision"] + 1)
        self._store.put("jobs", juid, job)
        self._tell(job)

    def touch(self, juid: str) -> None:
        """Wake who waits for a job, for something that is shown but not recorded."""
        event = self._changed.pop(juid, None)
        if event:
            event.set()

    async def wait(self, juid: str, revision: int, timeout_s: float) -> Job:
        """The job, when its revision is above ``revision``, or after the time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self.get(juid)["revision"] <= revision and loop.time() < until:
            event = self._changed.setdefault(juid, asyncio.Event())
            try:
                await asyncio.wait_for(event.wait(), max(until - loop.time(), 0.001))
            except TimeoutError:
                break
            if self.progress.get(juid):
                break
        return self.view(self.get(juid))

    def _tell(self, job: Job) -> None:
        self.touch(job["juid"])
        if self._on_change:
            self._on_change(job)


def _keep_attempt(job: Job, on_host_too: bool) -> None:
    """The attempt that is under way shows what the job shows; one that is over keeps its own end."""
    if not job["attempts"] or job["attempts"][-1].get("over"):
        return
    last = job["attempts"][-1]
    for name in ("state", "reason", "message", "exit_code", "started_at", "finished_at"):
        last[name] = job[name]
    if on_host_too:
        last["on_host"] = job["on_host"]
    last["over"] = State(job["state"]) in states.TERMINAL


def _entry(job: Job) -> dict[str, Any]:
    said = {key: job[key] for key in ("state", "reason", "message", "attempt", "host")}
    return {"at": iso(now()), **said}


def _new(fields: Job, juid: str, nickname: str, moment: datetime.datetime) -> Job:
    job: Job = {
        "juid": juid,
        "nickname": nickname,
        **fields,
        "state": str(State.QUEUED),
        "reason": str(states.Reason.SUBMITTED),
        "message": states.sentence(states.Reason.SUBMITTED, juid),
        "phase": None,
        "exit_code": None,
        "host": None,
        "attempt": 0,
        "attempts": [],
        "retries_used": 0,
        "not_before": None,
        "submitted_at": iso(moment),
        "started_at": None,
        "finished_at": None,
        "cancel_requested": False,
        "held": False,
        "handed": False,
        "outcome": None,
        "on_host": False,
        "sent": None,
        "revision": 1,
    }
    job["history"] = [_entry(job)]
    return job
