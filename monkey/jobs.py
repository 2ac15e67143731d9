"""Jobs on the main node: looked up, listed, changed by the table of states, waited for. Everything is in the store."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

from monkey import states
from monkey.errors import UsageProblem
from monkey.names import did_you_mean, is_nickname, juid_for, nickname_for
from monkey.states import State
from monkey.store import BaseStore

Job = dict[str, Any]
_HISTORY_KEPT = 200
# Not for listings: as large as a requirements file, and of the scheduler's own.
_INTERNAL = ("handed", "run_ident", "outcome", "on_host", "key", "waiting")


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
    """

    def __init__(self, store: BaseStore, on_change: Callable[[Job], None] | None = None) -> None:
        self._store = store
        self._on_change = on_change
        self._changed: dict[str, asyncio.Event] = {}
        self.progress: dict[str, dict[str, int]] = {}

    def get(self, juid: str) -> Job:
        """The record of a job.

        Raises:
            UnknownJob: there is none.
        """
        found = self._store.get("jobs", juid)
        if found is None:
            raise UnknownJob("job", f"no job {juid}; `monkey list jobs` shows those there are")
        return found

    def known(self, juid: str) -> Job | None:
        """The record of a job, or None."""
        return self._store.get("jobs", juid)

    def find(self, which: str) -> Job:
        """The job of a JUID or nickname as the API shows it; the newest match wins."""
        found = self._store.get("jobs", which)
        if found is None and is_nickname(which):
            juid = self._store.latest_by_nickname(which)
            found = self._store.get("jobs", juid) if juid else None
        if found is None:
            known = [name for job in self._store.iter_jobs() for name in (job["juid"], job["nickname"])][-400:]
            hint = did_you_mean(which, known) or "; `monkey list jobs` shows those there are"
            raise UnknownJob("job", f"no job {which[:80]!r}{hint}")
        return self.view(found)

    def view(self, job: Job) -> Job:
        """A job as the API and ``--json`` show it."""
        shown = {key: value for key, value in job.items() if key not in _INTERNAL}
        if job.get("waiting") and job["state"] == State.QUEUED:
            shown["reason"], shown["message"] = job["waiting"]
        shown["run"] = {key: value for key, value in job["run"].items() if key != "env_content"}
        shown["progress"] = self.progress.get(job["juid"])
        return shown

    def is_over(self, job: Job) -> bool:
        """Whether its state is final."""
        return State(job["state"]) in states.TERMINAL

    def in_states(self, *wanted: State) -> list[Job]:
        """Jobs in any of the states, oldest first."""
        return [self.get(juid) for state in wanted for juid in self._store.by_state(state)]

    def listing(
        self, *, state: str | None, provider: str | None, name: str | None, limit: int | None
    ) -> list[Job]:
        """Jobs as the API shows them, oldest first; ``limit`` keeps the newest."""
        wanted = states.parse_filter(state, "state") if state else None
        if limit is not None and limit < 0:
            raise UsageProblem("limit", "expected a number that is not negative")
        found: list[Job] = []
        for job in self._store.iter_jobs(newest_first=True):
            if limit is not None and len(found) >= limit:
                break
            if wanted is not None and State(job["state"]) not in wanted:
                continue
            if (provider and job["provider"] != provider) or (name and job["name"] != name):
                continue
            found.append(self.view(job))
        return found[::-1]

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return {str(state): count for state, count in self._store.counts().items() if count}

    def add(self, fields: Job, key: str | None) -> Job:
        """Record a new job; it is on disk when this returns.

        Args:
            fields: what was submitted.
            key: idempotency key: the same key again gives the job that the first call made.
        """
        if key:
            earlier = self._store.get("idempotency", key)
            if earlier:
                return self.get(earlier["juid"])
        moment = now()
        day = moment.astimezone().date()
        with self._store.transaction() as record:
            juid = juid_for(day, record.next_number(f"{day:%y-%m-%d}"))
            job = _new(fields, juid, nickname_for(self._store.count_jobs(), self._store.nickname_is_live), moment)
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
        **fields: Any,
    ) -> Job:
        """Record a change of a job; checked against the table of states, on disk when this returns.

        Args:
            juid: the job.
            state: new state, or None to keep it.
            reason: its code; its sentence stands unless ``message`` is given.
            fields: further fields of the record.

        Raises:
            IllegalChange: the table does not list it.
        """
        job = self.get(juid)
        if state is not None:
            job["state"] = str(states.check_change(job["state"], state))
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
        if job["attempts"]:
            last = job["attempts"][-1]
            last.update(
                state=job["state"],
                reason=job["reason"],
                exit_code=job["exit_code"],
                started_at=job["started_at"],
                finished_at=job["finished_at"],
            )
        self._store.put("jobs", juid, job)
        self._tell(job)
        return job

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


def _entry(job: Job) -> dict[str, Any]:
    return {"at": iso(now()), "state": job["state"], "reason": job["reason"], "message": job["message"]}


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
