"""One wave on its way: its playbook run, what is shown meanwhile, and what became of it on each host."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monkey.core.ending import conclude, never_there
from monkey.core.hosts import HostBoard, facts_in, why_failed
from monkey.core.livehost import LiveHost
from monkey.core.orders import Orders
from monkey.core.wave import trees_of, wave_doc
from monkey.engine import Engine, HostResult
from monkey.jobs import Job, JobBook
from monkey.logs import LogBook
from monkey.scheduler import Wave
from monkey.states import Reason, State

log = logging.getLogger("monkey.launch")

PLAYBOOK = "launch_wave"
_PROGRESS_EVERY_S = 0.3
# After a run that could not even begin (no room for its files, say), hosts are left alone for so long.
_PAUSE_AFTER_FAILURE_S = 5.0
# What a role's first task says about the job: its phase and reason.
_PHASES: dict[str, tuple[str, Reason]] = {
    "client": ("machine", Reason.PREPARING_MACHINE),
    "code": ("machine", Reason.SENDING),
    "install": ("installs", Reason.INSTALLING),
    "environment": ("installs", Reason.BUILDING_ENVIRONMENT),
    "launch": ("setup", Reason.DISPATCHED),
}
_FAILURES: dict[str, Reason] = {
    "client": Reason.CLIENT_FAILED,
    "code": Reason.CODE_FAILED,
    "install": Reason.INSTALL_FAILED,
    "environment": Reason.ENVIRONMENT_FAILED,
    "launch": Reason.LAUNCH_FAILED,
}


class Launcher:
    """Runs waves.

    Args:
        board, jobs, logs, engine, orders: the parts it works on.
        monkeyfs: folder of the store that playbooks read.
        spawn: runs a coroutine as a task that the core waits for when it stops.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        logs: LogBook,
        engine: Engine,
        orders: Orders,
        monkeyfs: Path,
        spawn: Callable[[Any], None],
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._logs = logs
        self._engine = engine
        self._orders = orders
        self._monkeyfs = monkeyfs
        self._spawn = spawn
        self._runs: dict[str, set[str]] = {}
        # Attempts that this core assigned and of which no run has begun its launch: surely not on their hosts.
        self._not_there: set[str] = set()

    def is_launching(self, juid: str) -> bool:
        """Whether a playbook run has the job in its wave now."""
        return any(juid in juids for juids in self._runs.values())

    def abandon(self, juid: str) -> None:
        """End the run of a cancelled job when it has no other jobs: nothing of it goes on."""
        for ident, juids in self._runs.items():
            if juid in juids and all(self._given_up(other) for other in juids):
                self._engine.cancel(ident)

    def abandon_all(self, juid: str) -> None:
        """End the run of a job that took too long: its other jobs go out again."""
        for ident, juids in self._runs.items():
            if juid in juids:
                self._engine.cancel(ident)

    def _given_up(self, juid: str) -> bool:
        job = self._jobs.get(juid)
        return bool(job["cancel_requested"]) or self._jobs.is_over(job)

    def first_time(self, juids: list[str]) -> None:
        """These jobs were just given a new attempt."""
        self._not_there.update(_key(self._jobs.get(juid)) for juid in juids)

    def launch(self, wave: Wave) -> None:
        """Start the run of a wave."""
        ident = self._engine.new_ident(PLAYBOOK)
        self._runs[ident] = {juid for juids in wave.hosts.values() for juid in juids}
        for name in wave.hosts:
            host = self._board.get(wave.provider, name)
            if host:
                host.launching.add(wave.shape)
        self._spawn(self._run(ident, wave))

    async def _run(self, ident: str, wave: Wave) -> None:
        loop = asyncio.get_running_loop()
        watcher: asyncio.Task[None] | None = None

        def on_task(host: str, role: str) -> None:
            loop.call_soon_threadsafe(self._entered, wave.hosts.get(host, []), role)

        try:
            provider = self._board.book.get(wave.provider)
            doc = wave_doc(wave, self._jobs)
            watcher = asyncio.create_task(self._watch(ident, wave))
            result = await asyncio.to_thread(
                self._engine.run,
                PLAYBOOK,
                provider.write_inventory(),
                ident=ident,
                limit=list(wave.hosts),
                wave=doc,
                variables={"monkey_monkeyfs": str(self._monkeyfs)},
                on_task=on_task,
            )
            for name, juids in wave.hosts.items():
                host = self._board.get(wave.provider, name)
                if host:
                    with self._jobs.together():
                        self._after(host, juids, result.host(name), doc["hosts"][name], result.cancelled)
        except BaseException:
            # The jobs stay where they are on record; the same attempts go out again after a pause.
            for host in self._board.all(wave.provider):
                if host.entry.name in wave.hosts:
                    host.retry_at = max(host.retry_at, loop.time() + _PAUSE_AFTER_FAILURE_S)
            raise
        finally:
            if watcher:
                watcher.cancel()
            self._runs.pop(ident, None)
            for host in self._board.all(wave.provider):
                if host.entry.name in wave.hosts:
                    host.launching.discard(wave.shape)

    def _entered(self, juids: list[str], role: str) -> None:
        if role not in _PHASES:
            return
        phase, reason = _PHASES[role]
        with self._jobs.together():
            for juid in juids:
                job = self._jobs.get(juid)
                if role == "launch":
                    self._not_there.discard(_key(job))
                if job["state"] == State.DISPATCHING and not job["handed"] and job["reason"] != reason:
                    self._jobs.change(juid, None, reason, phase=phase)

    async def _watch(self, ident: str, wave: Wave) -> None:
        """Show the bytes that are sent, from the lines that the sync writes."""
        path = self._engine.runs_dir / ident / "progress.jsonl"
        place = 0
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            try:
                with path.open("rb") as source:
                    source.seek(place)
                    lines = source.read().splitlines(keepends=True)
            except FileNotFoundError:
                continue
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                place += len(line)
                said = json.loads(line)
                for juid in {juid for juids in wave.hosts.values() for juid in juids}:
                    self._jobs.progress[juid] = {"sent_bytes": said["sent_bytes"], "total_bytes": said["total_bytes"]}
                    self._jobs.touch(juid)

    def _after(
        self, host: LiveHost, juids: list[str], outcome: HostResult, share: dict[str, Any], cut_off: bool
    ) -> None:
        for juid in juids:
            self._jobs.progress.pop(juid, None)
        facts = facts_in(outcome)
        if facts:
            host.answered()
            self._board.record(host, facts={**(host.facts or {}), **facts}, installed=True)
            self._board.connect(host)
        sent = (outcome.results.get("code") or {}).get("trees") or {}
        for juid in juids:
            mine = [sent[tree] for tree in trees_of(self._jobs.get(juid)) if tree in sent]
            if mine:
                total = {"files": sum(m["sent_files"] for m in mine), "bytes": sum(m["sent_bytes"] for m in mine)}
                self._jobs.change(juid, sent=total)
        if outcome.results.get("code"):
            self._board.record(host, trees=host.trees | set(share["trees"]) | set(share["data_trees"]))
        message = "" if outcome.ok else why_failed(outcome, host.entry)
        if outcome.unreachable is not None and not cut_off:
            self._board.failed(host, message)
        for juid in juids:
            job = self._jobs.get(juid)
            launched = outcome.ok and "launch" in outcome.results
            if not launched and (cut_off or outcome.ok) and not job["cancel_requested"]:
                # The run was ended, by us or by others, before it had brought the job there: which is no fault of the
                # job. The same attempt goes out again.
                host.retry_at = max(host.retry_at, asyncio.get_running_loop().time() + _PAUSE_AFTER_FAILURE_S)
                continue
            if job["state"] == State.DISPATCHING and not job["handed"]:
                self._settle(job, outcome, message)
            elif outcome.ok and job["cancel_requested"]:
                self._orders.give("cancel", job)
            self._not_there.discard(_key(job))

    def _settle(self, job: Job, outcome: HostResult, message: str) -> None:
        """What became of an attempt of which the host has not spoken itself."""
        juid = job["juid"]
        launched = "launch" in outcome.roles
        never = not launched and _key(job) in self._not_there
        if outcome.ok and "launch" in outcome.results:
            self._jobs.change(juid, None, Reason.ACCEPTED, handed=True, on_host=True, phase="setup")
            if job["cancel_requested"]:
                self._orders.give("cancel", job)
            elif job["held"]:
                self._orders.give("pause", job)
        elif job["cancel_requested"]:
            if not launched and (never or outcome.unreachable is None):
                self._jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None)
        elif outcome.unreachable is not None and never:
            never_there(self._jobs, juid, message)
        elif outcome.unreachable is not None:
            # Whether it got there is asked of the host itself, when it answers again (Dispatcher.redo).
            self._jobs.change(juid, None, Reason.HOST_UNREACHABLE, f"{message}; the job is kept and tried again")
        else:
            tail = str((outcome.failed or {}).get("log_tail") or "").rstrip()
            if tail:
                self._logs.note(juid, job["attempt"], f"{tail}\n")
            reason = str(_FAILURES.get(outcome.failed_role, Reason.LAUNCH_FAILED))
            conclude(self._jobs, juid, {"state": State.FAILED_SETUP, "reason": reason, "message": message})


def _key(job: Job) -> str:
    return f"{job['juid']}.{job['attempt']}"
