"""Dispatching: asks the scheduler, sends waves out through the engine, and reads what became of them."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monkey import scheduler
from monkey.core.follow import attempt_key
from monkey.core.hosts import HostBoard, LiveHost, facts_in, why_failed
from monkey.engine import Engine, HostResult
from monkey.jobs import Job, JobBook, iso, now
from monkey.logs import LogBook
from monkey.scheduler import Wave, shape_of
from monkey.states import Reason, State
from monkey.store import StoreFullError
from monkey.submit import need_of

log = logging.getLogger("monkey.dispatch")

PLAYBOOK = "launch_wave"
_PROGRESS_EVERY_S = 0.3
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


class Dispatcher:
    """Sends queued jobs out.

    Args:
        board, jobs, logs, engine: the parts it works on.
        monkeyfs: folder of the store that playbooks read.
        spawn: runs a coroutine as a task that the core waits for when it stops.
        cancel: called with a job that is to be cancelled on its host.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        logs: LogBook,
        engine: Engine,
        monkeyfs: Path,
        spawn: Callable[[Any], None],
        cancel: Callable[[str], None],
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._logs = logs
        self._engine = engine
        self._monkeyfs = monkeyfs
        self._spawn = spawn
        self._cancel = cancel
        self._runs: dict[str, set[str]] = {}

    def step(self) -> None:
        """Take up what an earlier core or a lost host left half done, then send out what is queued."""
        self._redo()
        queued = [job for job in self._jobs.in_states(State.QUEUED) if not job["held"]]
        if not queued:
            return
        waves, waiting = scheduler.decide([need(job) for job in queued], self._board.views())
        for why in waiting:
            self._wait(why)
        for wave in waves:
            self._send(wave)

    def is_launching(self, juid: str) -> bool:
        """Whether a playbook run has the job in its wave now."""
        return any(juid in juids for juids in self._runs.values())

    def abandon(self, juid: str) -> None:
        """End the run of a cancelled job when it has no other jobs: nothing of it goes on."""
        for ident, juids in self._runs.items():
            if juid in juids and all(self._given_up(other) for other in juids):
                self._engine.cancel(ident)

    def _given_up(self, juid: str) -> bool:
        job = self._jobs.get(juid)
        return bool(job["cancel_requested"]) or self._jobs.is_over(job)

    def _wait(self, why: scheduler.Waiting) -> None:
        job = self._jobs.get(why.juid)
        if job["reason"] != why.reason or job["message"] != why.message:
            self._jobs.change(why.juid, None, why.reason, why.message)

    def _send(self, wave: Wave) -> None:
        try:
            for name, juids in wave.hosts.items():
                for juid in juids:
                    self._assign(juid, name)
        except StoreFullError:
            log.error("the disk is full: nothing is dispatched until there is room")
            return
        self._launch(wave)

    def _assign(self, juid: str, host: str) -> None:
        job = self._jobs.get(juid)
        number = job["attempt"] + 1
        begun = {"attempt": number, "host": host, "state": str(State.DISPATCHING), "reason": str(Reason.DISPATCHED)}
        ends = {"exit_code": None, "started_at": None, "finished_at": None}
        self._jobs.change(
            juid,
            State.DISPATCHING,
            Reason.DISPATCHED,
            f"goes to host {host} of provider {job['provider']}",
            phase="machine",
            host=host,
            attempt=number,
            handed=False,
            dispatched_at=iso(now()),
            attempts=[*job["attempts"], {**begun, **ends}],
        )

    def _redo(self) -> None:
        """Attempts that were to go out and of which their host, now that it answers, knows nothing.

        The same attempt goes to the same host: a client that got it after all answers that it knows it.
        """
        waves: dict[tuple[str, str], Wave] = {}
        clock = asyncio.get_running_loop().time()
        for job in self._jobs.in_states(State.DISPATCHING):
            host = self._board.of(job)
            if job["handed"] or host is None or self.is_launching(job["juid"]) or host.retry_at > clock:
                continue
            if host.installed and not host.connected:
                continue
            if host.attempts is not None and attempt_key(job) in host.attempts:
                continue
            if job["cancel_requested"]:
                self._jobs.change(job["juid"], State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None)
                continue
            shape = shape_of_job(job)
            wave = waves.setdefault((job["provider"], shape), Wave(job["provider"], shape))
            wave.hosts.setdefault(host.entry.name, []).append(job["juid"])
        for wave in waves.values():
            self._launch(wave)

    def _launch(self, wave: Wave) -> None:
        ident = self._engine.new_ident(PLAYBOOK)
        self._runs[ident] = {juid for juids in wave.hosts.values() for juid in juids}
        for name in wave.hosts:
            host = self._board.get(wave.provider, name)
            if host:
                host.launching.add(wave.shape)
        self._spawn(self._run(ident, wave))

    async def _run(self, ident: str, wave: Wave) -> None:
        loop = asyncio.get_running_loop()
        provider = self._board.book.get(wave.provider)
        doc = wave_doc(wave, self._jobs)
        watcher = asyncio.create_task(self._watch(ident, wave))

        def on_task(host: str, role: str) -> None:
            loop.call_soon_threadsafe(self._entered, wave.hosts.get(host, []), role)

        try:
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
                    self._after(host, juids, result.host(name), doc["hosts"][name])
        finally:
            watcher.cancel()
            self._runs.pop(ident, None)
            for name in wave.hosts:
                host = self._board.get(wave.provider, name)
                if host:
                    host.launching.discard(wave.shape)

    def _entered(self, juids: list[str], role: str) -> None:
        if role not in _PHASES:
            return
        phase, reason = _PHASES[role]
        for juid in juids:
            job = self._jobs.get(juid)
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

    def _after(self, host: LiveHost, juids: list[str], outcome: HostResult, share: dict[str, Any]) -> None:
        for juid in juids:
            self._jobs.progress.pop(juid, None)
        facts = facts_in(outcome)
        if facts:
            host.answered()
            self._board.record(host, facts={**(host.facts or {}), **facts}, installed=True)
            self._board.connect(host)
        sent = (outcome.results.get("code") or {}).get("trees") or {}
        for juid in juids:
            mine = [sent[tree] for tree in _all_trees(self._jobs.get(juid)) if tree in sent]
            if mine:
                total = {"files": sum(m["sent_files"] for m in mine), "bytes": sum(m["sent_bytes"] for m in mine)}
                self._jobs.change(juid, sent=total)
        if outcome.results.get("code"):
            self._board.record(host, trees=host.trees | set(share["trees"]) | set(share["data_trees"]))
        if outcome.ok:
            for juid in juids:
                job = self._jobs.get(juid)
                if job["state"] == State.DISPATCHING and not job["handed"]:
                    self._jobs.change(juid, None, Reason.ACCEPTED, handed=True, on_host=True, phase="setup")
                if job["cancel_requested"]:
                    self._cancel(juid)
            return
        message = why_failed(outcome, host.entry)
        if outcome.unreachable is not None:
            host.failed(message)
        for juid in juids:
            job = self._jobs.get(juid)
            if job["state"] != State.DISPATCHING or job["handed"]:
                continue
            if outcome.unreachable is not None:
                # Whether it got there is asked of the host itself, when it answers again (see _redo).
                self._jobs.change(juid, None, Reason.HOST_UNREACHABLE, f"{message}; the job is kept and tried again")
            elif job["cancel_requested"]:
                if "launch" not in outcome.roles:
                    self._jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None)
            else:
                self._failed(job, outcome, message)

    def _failed(self, job: Job, outcome: HostResult, message: str) -> None:
        tail = str((outcome.failed or {}).get("log_tail") or "").rstrip()
        if tail:
            self._logs.note(job["juid"], job["attempt"], f"{tail}\n")
        reason = _FAILURES.get(outcome.failed_role, Reason.LAUNCH_FAILED)
        self._jobs.change(job["juid"], State.FAILED_SETUP, reason, message, phase=None)


def need(job: Job) -> scheduler.Need:
    """A queued job for the scheduler."""
    queued_at = datetime.datetime.fromisoformat(job["submitted_at"]).timestamp()
    return need_of(job, shape_of_job(job), queued_at)


def shape_of_job(job: Job) -> str:
    """Key of the jobs that may share a wave with it."""
    return shape_of(_environment(job), job["install"])


def _environment(job: Job) -> dict[str, Any]:
    run = job["run"]
    return {"kind": run["env_type"], "content": run["env_content"], "image": run["image"]}


def wave_doc(wave: Wave, jobs: JobBook) -> dict[str, Any]:
    """Content of the wave file (docs/interfaces.md, "A wave")."""
    hosts: dict[str, Any] = {}
    first: Job | None = None
    for name, juids in wave.hosts.items():
        mine = [jobs.get(juid) for juid in juids]
        first = first or mine[0]
        hosts[name] = {
            "attempts": [attempt_spec(job) for job in mine],
            "trees": sorted({tree for job in mine for tree in _trees(job)}),
            "data_trees": sorted({item["tree"] for job in mine for item in job["data"]}),
        }
    assert first is not None
    return {"hosts": hosts, "environment": _environment(first), "install": first["install"]}


def attempt_spec(job: Job) -> dict[str, Any]:
    """An attempt as a client takes it (docs/interfaces.md, "Attempt spec")."""
    return {
        "juid": job["juid"],
        "attempt": job["attempt"],
        "name": job["name"],
        "nickname": job["nickname"],
        "command": job["command"],
        "code": job["code"]["tree"] if job["code"] else None,
        "data": job["data"],
        "persist": job["persist"],
        "env": job["env"],
        "environment": {"kind": "none"},
        "setup": job["setup"],
        "resources": job["resources"],
        "time_limit_s": job["time_limit_s"],
    }


def _all_trees(job: Job) -> set[str]:
    return {*_trees(job), *(item["tree"] for item in job["data"])}


def _trees(job: Job) -> list[str]:
    code = [job["code"]["tree"]] if job["code"] else []
    return code + [item["tree"] for item in job["persist"] if item["tree"]]
