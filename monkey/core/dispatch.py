"""Dispatching: asks the scheduler what goes where, records it, and hands it to the launcher."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from monkey.core.ending import requeue
from monkey.core.follow import attempt_key
from monkey.core.hosts import HostBoard
from monkey.core.launching import Launcher
from monkey.core.live import LiveJobs, host_key
from monkey.core.wave import need, shape_of_job
from monkey.jobs import Job, JobBook, iso, now
from monkey.scheduler import DEFAULT_POLICY, Decision, HostView, Placement, Queue, Waiting, Wave, decide, policy_named
from monkey.states import Reason, State
from monkey.store import BaseStore

_META_KEY = "scheduler"


class Dispatcher:
    """Sends queued jobs out.

    Args:
        board, jobs, live, launcher: the parts it works on.
        store: keeps the policy.
    """

    def __init__(
        self, board: HostBoard, jobs: JobBook, live: LiveJobs, launcher: Launcher, store: BaseStore
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._live = live
        self._launcher = launcher
        self._store = store
        self.decision = Decision()
        self.policy = str((store.get("meta", _META_KEY) or {}).get("policy", DEFAULT_POLICY))

    def set_policy(self, name: str) -> None:
        """Choose hosts by another policy from now on, also after a restart.

        Raises:
            UsageProblem: there is no such policy.
        """
        self.policy = policy_named(name).name
        self._store.put("meta", _META_KEY, {"policy": self.policy})

    def step(self) -> None:
        """Take up what an earlier core or a lost host left half done, then send out what is queued."""
        self._redo()
        for juid, parent in list(self._live.doomed.items()):
            self._doom(juid, parent)
        self.decision = self._decide()
        for wave in self.decision.waves:
            juids = [juid for on_host in wave.hosts.values() for juid in on_host]
            # In one piece: a wave costs one write, and none of it goes out when that is refused.
            with self._jobs.together():
                for juid in juids:
                    self._assign(juid, self.decision.placements[juid])
            self._launcher.first_time(juids)
            self._launcher.launch(wave)

    def _decide(self) -> Decision:
        return decide(self._live.queue, self._board.views(), policy=self.policy, out=self._live.out)

    def foresee(self, job: Job, views: list[HostView]) -> Decision:
        """What would become of one more job now."""
        return decide(Queue([need(job)]), views, policy=self.policy, out=self._live.out)

    def why(self, job: Job) -> Waiting | None:
        """Why a queued job waits now; None when nothing is known to hold it."""
        juid = job["juid"]
        if job["held"]:
            return Waiting(juid, str(Reason.PAUSED_BY_USER), f"Held by you; `monkey job resume {juid}` lets it go on.")
        parents = self._live.waiting_for(juid)
        if parents:
            shown = [self._words(parent, when) for parent, when in list(parents.items())[:3]]
            more = f" and {len(parents) - 3} more" if len(parents) > 3 else ""
            return Waiting(juid, str(Reason.WAITING_FOR_DEPENDENCY), f"waits for {', '.join(shown)}{more}")
        found = self._live.queue.get(juid)
        return self.decision.why(found) if found else None

    def waiting(self) -> list[dict[str, Any]]:
        """What queued jobs wait for: reason, sentence, how many, and the first of them."""
        found: dict[tuple[str, str], dict[str, Any]] = {}

        def add(why: Waiting, jobs: int) -> None:
            entry = {"reason": why.reason, "message": why.message, "jobs": 0, "first": why.juid}
            found.setdefault((why.reason, why.message), entry)["jobs"] += jobs

        for lane in self._live.queue.lanes:
            why = self.decision.waiting.get(lane.key)
            if why:
                add(why, len(lane))
        others = [juid for juid in self._live.in_state(State.QUEUED) if juid not in self._live.queue]
        for reason, sentence in (
            (Reason.WAITING_FOR_DEPENDENCY, "wait for other jobs"),
            (Reason.PAUSED_BY_USER, "are held by the user"),
        ):
            mine = [juid for juid in others if bool(self._live.waiting_for(juid)) == (reason != Reason.PAUSED_BY_USER)]
            if mine:
                add(Waiting(mine[0], str(reason), sentence), len(mine))
        return list(found.values())

    def _words(self, parent: str, when: str) -> str:
        job = self._jobs.known(parent)
        named = f"{parent} ({job['nickname']}, {job['state']})" if job else parent
        return f"{named} to {'succeed' if when == 'success' else 'end'}"

    def _assign(self, juid: str, placement: Placement) -> None:
        job = self._jobs.get(juid)
        number = job["attempt"] + 1
        entry = {
            "attempt": number,
            "provider": job["provider"],
            "host": placement.host,
            "dispatched_at": iso(now()),
            "placement": asdict(placement),
            "on_host": False,
            "over": False,
        }
        self._jobs.change(
            juid,
            State.DISPATCHING,
            Reason.DISPATCHED,
            f"goes to host {placement.host} of provider {job['provider']}",
            phase="machine",
            host=placement.host,
            attempt=number,
            handed=False,
            attempts=[*job["attempts"], entry],
        )

    def _doom(self, juid: str, parent: str) -> None:
        failed = self._jobs.known(parent)
        ended = f"ended {failed['state']}" if failed else "is not on record"
        message = f"needs {parent} to succeed, which {ended}; when it has, `monkey job reset {juid}`"
        self._jobs.change(juid, State.CANCELLED, Reason.DEPENDENCY_FAILED, message, phase=None)

    def _redo(self) -> None:
        """Attempts that were to go out and of which their host, now that it answers, knows nothing.

        The same attempt goes to the same host: a client that got it after all answers that it knows it.
        """
        waves: dict[tuple[str, str], Wave] = {}
        clock = asyncio.get_running_loop().time()
        for juid in self._live.in_state(State.DISPATCHING):
            if self._launcher.is_launching(juid):
                continue
            job = self._jobs.get(juid)
            host = self._board.of(job)
            if job["handed"] or host is None or host.retry_at > clock:
                continue
            if host.installed and not host.connected:
                continue
            if host.attempts is not None and attempt_key(job) in host.attempts:
                continue
            if job["cancel_requested"]:
                self._jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None)
                continue
            shape = shape_of_job(job)
            wave = waves.setdefault((job["provider"], shape), Wave(job["provider"], shape))
            wave.hosts.setdefault(host.entry.name, []).append(juid)
        for wave in waves.values():
            self._launcher.launch(wave)

    def next_due(self) -> float | None:
        """Seconds until an attempt that could not be brought to its host is tried again."""
        clock = asyncio.get_running_loop().time()
        keys = {host_key(self._jobs.get(juid)) for juid in self._live.in_state(State.DISPATCHING)}
        hosts = [host for host in map(self._board.by_key, keys) if host is not None]
        due = [host.retry_at - clock for host in hosts if host.retry_at > clock]
        return min(due, default=None)

    def recovered(self, juid: str) -> None:
        """The pause before a retry is over: back into the queue."""
        job = self._jobs.get(juid)
        if job["cancel_requested"]:
            self._jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None)
        else:
            requeue(self._jobs, juid, Reason.RELEASED)
