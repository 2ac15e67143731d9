"""The jobs that have not ended, as the loop needs them: kept up by every recorded change, never read from the store
again. What 100,000 queued jobs cost a turn is nothing.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from monkey.core.deadlines import DEADLINE, PHASE, limit_of
from monkey.core.timers import Timers
from monkey.jobs import Job
from monkey.retrying import lease_s
from monkey.scheduler import Need, Queue
from monkey.states import DEADLINES, TERMINAL, State

HOLDING = (State.DISPATCHING, State.RUNNING, State.PAUSED)
RETRY = "retry"
_KEEPING = (State.RUNNING, State.PAUSED, State.CLEANUP)


def host_key(job: Job) -> str:
    """Key of the host that a job is on, or was sent to last."""
    return f"{job['provider']}/{job['host']}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a job stands for in the picture: enough to take it out again."""

    state: State
    phase: str | None
    since: float
    phase_since: float
    host: str | None
    group: str | None
    cpus: float
    gpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Leased:
    """An attempt that its host ends when nobody renews it: `JUID.n`, its host, and whether it surely got there."""

    key: str
    host: str
    lease_s: float
    handed: bool


@dataclass
class Use:
    """What the jobs on a host hold of it."""

    cpus: float = 0.0
    gpus: int = 0
    memory_mb: int = 0
    jobs: int = 0


class LiveJobs:
    """Jobs that have not ended.

    Args:
        need_of: a queued job as the scheduler sees it.
        state_of: the state of any job, None when there is none of this JUID.
        clock: seconds that never go back and are not stepped.

    Attributes:
        queue: jobs that may go out now, as far as they themselves are concerned.
        out: how many jobs of each queue name are out.
        timers: pauses before a retry, deadlines and limits of phases.
        doomed: jobs whose dependency can never be met, with the job that it failed by.
        leased: attempts on hosts that have a lease, by JUID.
        handed_at: when an attempt was known to be on its host, by JUID; 0 when an earlier core knew it.
        keeping: jobs with folders to bring back: running, or ended a moment ago.
    """

    def __init__(
        self,
        need_of: Callable[[Job], Need],
        state_of: Callable[[str], State | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._need_of = need_of
        self._state_of = state_of
        self.clock = clock
        self.queue = Queue()
        self.out: Counter[str] = Counter()
        self.timers = Timers()
        self.doomed: dict[str, str] = {}
        self.leased: dict[str, Leased] = {}
        self.keeping: dict[str, None] = {}
        self.handed_at: dict[str, float] = {}
        self._seen: dict[str, _Seen] = {}
        self._states: dict[State, dict[str, None]] = defaultdict(dict)
        self._on: dict[str, dict[str, None]] = defaultdict(dict)
        self._use: dict[str, Use] = {}
        self._waiting_for: dict[str, dict[str, str]] = {}
        self._children: dict[str, dict[str, None]] = defaultdict(dict)
        self._ready_needs: dict[str, Need] = {}

    def load(self, jobs: Iterable[Job]) -> None:
        """Take in what an earlier core left."""
        now_s = time.time()
        for job in jobs:
            entered = job["history"][-1]["at"]
            for entry in reversed(job["history"]):
                if entry["state"] != job["state"]:
                    break
                entered = entry["at"]
            age_s = max(0.0, now_s - datetime.datetime.fromisoformat(entered).timestamp())
            self._note(job, age_s)
            if job["juid"] in self.handed_at:
                self.handed_at[job["juid"]] = 0.0

    def note(self, job: Job) -> None:
        """A change of a job was recorded."""
        self._note(job, 0.0)

    def in_state(self, *states: State) -> list[str]:
        """JUIDs of live jobs in these states, in the order in which they came to them."""
        return [juid for state in states for juid in self._states[state]]

    def on(self, host: str) -> list[str]:
        """JUIDs of the jobs that hold something of a host."""
        return list(self._on.get(host, ()))

    def use(self, host: str) -> Use:
        """What they hold."""
        return self._use.get(host, Use())

    def waiting_for(self, juid: str) -> dict[str, str]:
        """Jobs that a queued job waits for: JUID to `success` or `end`."""
        return self._waiting_for.get(juid, {})

    def children(self, juid: str) -> list[str]:
        """Live jobs that wait for a job."""
        return list(self._children.get(juid, ()))

    def postpone(self, juid: str, due: float) -> None:
        """A deadline that counts from the host's last word is later than it was thought to be."""
        self.timers.set(juid, DEADLINE, due)

    def _note(self, job: Job, age_s: float) -> None:
        juid, state = job["juid"], State(job["state"])
        old = self._seen.pop(juid, None)
        if old:
            self._take_out(juid, old)
        if state in TERMINAL:
            self.timers.clear(juid, DEADLINE, PHASE, RETRY)
            self.doomed.pop(juid, None)
            self.handed_at.pop(juid, None)
            for child in self.children(juid):
                self._settle(child, juid)
            return
        now = self.clock()
        same = old is not None and old.state == state
        since = old.since if old and same else now - age_s
        phase_since = old.phase_since if old and same and old.phase == job["phase"] else max(since, now - age_s)
        resources = job["resources"]
        holds = state in HOLDING
        seen = _Seen(
            state,
            job["phase"],
            since,
            phase_since,
            host_key(job) if holds else None,
            job["queue"] if holds else None,
            resources["cpus"],
            resources["gpus"],
            resources["memory_mb"] or 0,
        )
        self._put_in(juid, seen)
        if state == State.QUEUED:
            self._queue_up(job)
        lease = lease_s(job) if seen.host is not None else None
        if seen.host is None or not job["handed"]:
            self.handed_at.pop(juid, None)
        else:
            self.handed_at.setdefault(juid, now)
        if job["persist"] and state in _KEEPING:
            self.keeping[juid] = None
        if lease is not None and seen.host is not None:
            self.leased[juid] = Leased(f"{juid}.{job['attempt']}", seen.host, lease, bool(job["handed"]))
        self._set_timers(job, seen)

    def _queue_up(self, job: Job) -> None:
        juid = job["juid"]
        unmet: dict[str, str] = {}
        for item in job["depends_on"]:
            parent = item["job"]
            verdict = _dependency(self._state_of(parent), item["when"])
            if verdict is None:
                unmet[parent] = item["when"]
            elif not verdict:
                self.doomed.setdefault(juid, parent)
        for parent in unmet:
            self._children[parent][juid] = None
        if unmet:
            self._waiting_for[juid] = unmet
        if not job["held"]:
            self._ready_needs[juid] = self._need_of(job)
            if not unmet and juid not in self.doomed:
                self.queue.add(self._ready_needs.pop(juid))

    def _settle(self, child: str, parent: str) -> None:
        """A job that `child` waits for has ended."""
        unmet = self._waiting_for.get(child)
        if unmet is None or parent not in unmet:
            return
        if not _dependency(self._state_of(parent), unmet[parent]):
            self.doomed.setdefault(child, parent)
            return
        del unmet[parent]
        self._children[parent].pop(child, None)
        if not unmet:
            self._waiting_for.pop(child)
            need = self._ready_needs.pop(child, None)
            if need and child not in self.doomed:
                self.queue.add(need)

    def _put_in(self, juid: str, seen: _Seen) -> None:
        self._seen[juid] = seen
        self._states[seen.state][juid] = None
        if seen.host is not None:
            self._on[seen.host][juid] = None
            use = self._use.setdefault(seen.host, Use())
            use.cpus += seen.cpus
            use.gpus += seen.gpus
            use.memory_mb += seen.memory_mb
            use.jobs += 1
        if seen.group is not None:
            self.out[seen.group] += 1

    def _take_out(self, juid: str, seen: _Seen) -> None:
        self._states[seen.state].pop(juid, None)
        if seen.host is not None:
            self._on[seen.host].pop(juid, None)
            use = self._use[seen.host]
            use.cpus -= seen.cpus
            use.gpus -= seen.gpus
            use.memory_mb -= seen.memory_mb
            use.jobs -= 1
            if not use.jobs:
                # Sums of fractions do not come back to zero exactly.
                del self._use[seen.host]
        self.leased.pop(juid, None)
        self.keeping.pop(juid, None)
        if seen.group is not None:
            self.out[seen.group] -= 1
        if seen.state == State.QUEUED:
            self.queue.discard(juid)
            self._ready_needs.pop(juid, None)
            self.doomed.pop(juid, None)
            for parent in self._waiting_for.pop(juid, {}):
                self._children[parent].pop(juid, None)

    def _set_timers(self, job: Job, seen: _Seen) -> None:
        juid = job["juid"]
        self.timers.set(juid, DEADLINE, seen.since + DEADLINES[seen.state].seconds)
        limit_s = limit_of(job)
        self.timers.set(juid, PHASE, None if limit_s is None else seen.phase_since + limit_s)
        if seen.state != State.RECOVERING:
            self.timers.clear(juid, RETRY)
        else:
            self.timers.set(juid, RETRY, seen.since + job["attempts"][-1]["retry"]["delay_s"])


def _dependency(state: State | None, when: str) -> bool | None:
    """Whether a dependency is met; None while that is open."""
    if state is None:
        return False
    if state not in TERMINAL:
        return None
    return when == "end" or state == State.SUCCEEDED
