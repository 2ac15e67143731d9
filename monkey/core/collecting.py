"""Bringing persisted folders back, during a run and after it, and clearing hosts of ended attempts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monkey.core.ending import conclude
from monkey.core.hosts import HostBoard, why_failed
from monkey.core.live import LiveJobs, host_key
from monkey.core.livehost import LiveHost
from monkey.engine import Engine, HostResult
from monkey.errors import MonkeyError
from monkey.jobs import Job, JobBook
from monkey.states import Reason, State

log = logging.getLogger("monkey.collect")

PLAYBOOK = "collect_jobs"
# Persisted folders of running jobs come back this often; what a lost machine takes with it is younger than that.
DURING_RUN_EVERY_S = 60.0
# Ended attempts without results are cleared away in company.
_CLEAR_AFTER_S = 5.0
_CLEAR_AT_ONCE = 100
# A host that answers and still cannot give the results (its disk is gone, say) will not learn to.
_TRIES = 5
# Each run is a process of some 60 MB; hosts share runs.
_RUNS_AT_ONCE = 4
_RUNNING = (State.RUNNING, State.PAUSED)


class CollectFailed(MonkeyError):
    """Results could not be brought back now."""


@dataclass
class _Work:
    """What a run is to do on one host."""

    host: LiveHost
    fetch: list[Job]
    clear: list[tuple[str, int]]

    def share(self) -> dict[str, Any]:
        """The host's part of the wave file."""
        return {
            "collect": [
                {
                    "juid": job["juid"],
                    "attempt": job["attempt"],
                    "persist": [{"name": item["name"], "path": item["path"]} for item in job["persist"]],
                }
                for job in self.fetch
            ],
            "teardown": [{"juid": juid, "attempt": attempt} for juid, attempt in self.clear],
        }


class Collector:
    """Runs ``collect_jobs`` for hosts that have something to fetch or to clear.

    Args:
        board, jobs, live, engine: the parts it works on.
        monkeyfs: where results go.
        spawn: runs a coroutine as a task.
        wake: called when the scheduler should look again.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        live: LiveJobs,
        engine: Engine,
        monkeyfs: Path,
        spawn: Callable[[Any], None],
        wake: Callable[[], None],
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._live = live
        self._engine = engine
        self._monkeyfs = monkeyfs
        self._spawn = spawn
        self._wake = wake
        self._at_once = asyncio.Semaphore(_RUNS_AT_ONCE)
        # Running jobs: their host, and when their folders are fetched next.
        self._due: dict[str, tuple[str, float]] = {}
        self._failures: dict[str, int] = {}
        # Ended attempts whose folders are still on their hosts; the flag in the record survives a restart.
        self._remains: dict[tuple[str, int], tuple[str, float]] = {}

    def load(self) -> None:
        """Take up what an earlier core left to clear, and results that are still to come."""
        for job in self._jobs.on_hosts():
            self.noted(job)
        for juid in self._live.in_state(State.CLEANUP):
            if not self._jobs.get(juid)["persist"]:
                conclude(self._jobs, juid)

    def noted(self, job: Job) -> None:
        """Remember to clear hosts of attempts of a job that are over."""
        clock = asyncio.get_running_loop().time()
        for entry in job["attempts"]:
            if entry.get("on_host") and entry.get("over"):
                key = f"{entry['provider']}/{entry['host']}"
                self._remains.setdefault((job["juid"], entry["attempt"]), (key, clock))

    def next_due(self) -> float | None:
        """The event loop's time at which there is something to fetch or to clear."""
        clock = asyncio.get_running_loop().time()
        due = [at for key, at in self._due.values() if self._open(key)]
        due += [at + _CLEAR_AFTER_S for key, at in self._remains.values() if self._open(key)]
        if due:
            # Work that is due waits for its host.
            due = [max(min(due), clock)]
        due += [host.retry_at for host in self._board.all() if host.connected and host.retry_at > clock]
        return min(due, default=None)

    def _open(self, key: str) -> bool:
        host = self._board.by_key(key)
        clock = asyncio.get_running_loop().time()
        return host is not None and host.connected and not host.collecting and host.retry_at <= clock

    def step(self) -> None:
        """Start what is due: one run for all hosts of a provider that are due now, none for a host that is in one."""
        clock = asyncio.get_running_loop().time()
        due: dict[str, list[_Work]] = {}
        keeping: dict[str, list[Job]] = {}
        self._due = {juid: at for juid, at in self._due.items() if juid in self._live.keeping}
        for juid in self._live.keeping:
            job = self._jobs.get(juid)
            keeping.setdefault(host_key(job), []).append(job)
        for host in self._board.all():
            if host.collecting or host.retry_at > clock or not host.connected:
                continue
            work = self._work(host, keeping.get(host.key, []), clock)
            if work:
                host.collecting = True
                due.setdefault(host.provider, []).append(work)
        for works in due.values():
            self._spawn(self._run(works))

    def _work(self, host: LiveHost, mine: list[Job], clock: float) -> _Work | None:
        for job in mine:
            self._due.setdefault(job["juid"], (host.key, clock + DURING_RUN_EVERY_S))
        fetch = [job for job in mine if job["state"] == State.CLEANUP or self._due[job["juid"]][1] <= clock]
        mine_left = {attempt: at for attempt, (key, at) in self._remains.items() if key == host.key}
        clear = list(mine_left)
        old = any(clock - at >= _CLEAR_AFTER_S for at in mine_left.values())
        if not fetch and not (clear and (old or len(clear) >= _CLEAR_AT_ONCE)):
            return None
        clear += [(job["juid"], job["attempt"]) for job in fetch if job["state"] == State.CLEANUP]
        return _Work(host, fetch, clear)

    async def now(self, juid: str) -> list[dict[str, Any]]:
        """Fetch a running job's folders now; of one that does not run, what was fetched last.

        Raises:
            CollectFailed: its host does not answer, or the fetch went wrong; says why.
        """
        job = self._jobs.get(juid)
        if State(job["state"]) in _RUNNING and job["persist"]:
            host = self._board.of(job)
            if host is None:
                raise CollectFailed(f"host {job['host']} is not known any more")
            while host.collecting:
                await asyncio.sleep(0.1)
            host.collecting = True
            outcome = (await self._run([_Work(host, [self._jobs.get(juid)], [])]))[host.entry.name]
            if not outcome.ok and State(self._jobs.get(juid)["state"]) in _RUNNING:
                raise CollectFailed(why_failed(outcome, host.entry))
        while self._jobs.get(juid)["state"] == State.CLEANUP:
            await self._jobs.wait(juid, self._jobs.get(juid)["revision"], 5.0)
            host = self._board.of(job)
            if host is None or host.message:
                raise CollectFailed(host.message if host else f"host {job['host']} is not known any more")
        persist: list[dict[str, Any]] = self._jobs.get(juid)["persist"]
        return persist

    async def _run(self, works: list[_Work]) -> dict[str, HostResult]:
        """One playbook run for hosts of one provider; what came of each."""
        provider = self._board.book.get(works[0].host.provider)
        try:
            async with self._at_once:
                result = await asyncio.to_thread(
                    self._engine.run,
                    PLAYBOOK,
                    provider.write_inventory(),
                    limit=[work.host.entry.name for work in works],
                    wave={"hosts": {work.host.entry.name: work.share() for work in works}},
                    variables={"monkey_monkeyfs": str(self._monkeyfs)},
                )
            outcomes = {work.host.entry.name: result.host(work.host.entry.name) for work in works}
            for work in works:
                self._after(work, outcomes[work.host.entry.name])
            return outcomes
        finally:
            for work in works:
                work.host.collecting = False
            self._wake()

    def _after(self, work: _Work, outcome: HostResult) -> None:
        host, fetch, clear = work.host, work.fetch, work.clear
        clock = asyncio.get_running_loop().time()
        came = {
            (entry["juid"], entry["attempt"]): entry["persist"]
            for entry in (outcome.results.get("collect") or {}).get("attempts", [])
        }
        cleared = outcome.ok or bool(outcome.results.get("teardown"))
        if cleared:
            for juid, number in clear:
                self._remains.pop((juid, number), None)
                self._jobs.cleared(juid, {number})
        for job in fetch:
            self._due[job["juid"]] = (host.key, clock + DURING_RUN_EVERY_S)
            persist = came.get((job["juid"], job["attempt"]))
            if persist is not None:
                self._jobs.change(job["juid"], persist=persist)
            current = self._jobs.get(job["juid"])
            if job["state"] == State.CLEANUP and current["state"] == State.CLEANUP and persist is not None:
                self._due.pop(job["juid"], None)
                conclude(self._jobs, job["juid"])
        if not outcome.ok:
            message = why_failed(outcome, host.entry)
            log.warning("collect from %s: %s", host.key, message)
            host.retry_at = clock + host.pause_s
            for job in fetch:
                current = self._jobs.get(job["juid"])
                if current["state"] != State.CLEANUP or job["state"] != State.CLEANUP:
                    continue
                if outcome.unreachable is None:
                    self._failures[job["juid"]] = self._failures.get(job["juid"], 0) + 1
                if self._failures.get(job["juid"], 0) >= _TRIES:
                    conclude(self._jobs, job["juid"], note=f"Its results could not be brought back: {message}")
                else:
                    self._jobs.change(job["juid"], None, Reason.COLLECTING, f"results are still to come: {message}")
