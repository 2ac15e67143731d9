"""What hosts say, turned into changes of jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from monkey import states
from monkey.core.hosts import HOLDING, HostBoard, LiveHost, host_key
from monkey.jobs import Job, JobBook, iso
from monkey.logs import LogBook
from monkey.states import Reason, State

log = logging.getLogger("monkey.follow")


class Follower:
    """Hears all hosts. Replayed and late events change nothing.

    Args:
        board: the hosts.
        jobs: the jobs.
        logs: their logs.
        wake: called when the scheduler should look again.
        cancel: called with a job that is to be cancelled on its host, now that the host answers.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        logs: LogBook,
        wake: Callable[[], None],
        cancel: Callable[[str], None],
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._logs = logs
        self._wake = wake
        self._cancel = cancel

    def on_hello(self, host: str, hello: dict[str, Any]) -> None:
        """The host answers: adopt what it has, repeat what it has not heard."""
        live = self._host(host)
        if live is None:
            return
        live.attempts = {f"{a['juid']}.{a['attempt']}": str(a["state"]) for a in hello.get("attempts", [])}
        live.answered()
        if not live.installed:
            self._board.record(live, installed=True)
        for job in self._on(live):
            if attempt_key(job) in live.attempts and not job["handed"]:
                self._jobs.change(job["juid"], None, Reason.ACCEPTED, handed=True, phase="setup")
            elif attempt_key(job) not in live.attempts and job["handed"]:
                # It had the attempt on disk and has it no more: its disk was lost, and the end with it.
                message = f"host {live.entry.name} knows nothing of it any more; nobody can say how it ended"
                self._jobs.change(job["juid"], State.LOST, Reason.HOST_LOST, message, phase=None)
                continue
            elif job["reason"] == Reason.HOST_UNREACHABLE:
                self._jobs.change(job["juid"], None, _back(job))
            if job["cancel_requested"]:
                self._cancel(job["juid"])
        self._wake()

    def on_event(self, host: str, event: dict[str, Any]) -> None:
        """One numbered event of an attempt."""
        live, juid = self._host(host), str(event["juid"])
        job = self._jobs.known(juid)
        if live is None or job is None or not self._is_current(live, job, event):
            return
        kind = event["type"]
        if live.attempts is not None:
            live.attempts[f"{juid}.{event['attempt']}"] = kind
        if kind == "ended":
            self._ended(job, event)
        elif self._jobs.is_over(job) or job["state"] == State.CLEANUP:
            return
        elif kind == "accepted" and not job["handed"]:
            self._jobs.change(juid, None, Reason.ACCEPTED, handed=True, phase="setup", on_host=True)
        elif kind == "setup":
            self._jobs.change(juid, None, Reason.SETTING_UP, handed=True, phase="setup", on_host=True)
        elif kind in {"started", "resumed"} and job["state"] != State.RUNNING:
            reason = Reason.STARTED if kind == "started" else Reason.RESUMED
            started = job["started_at"] or iso(event["ts"])
            given = {"gpus_given": event["gpus"]} if "gpus" in event else {}
            self._jobs.change(
                juid, State.RUNNING, reason, handed=True, phase=None, on_host=True, started_at=started, **given
            )
        elif kind == "paused" and job["state"] != State.PAUSED:
            if job["state"] == State.DISPATCHING:
                self._jobs.change(juid, State.RUNNING, Reason.STARTED, handed=True, phase=None, on_host=True)
            self._jobs.change(juid, State.PAUSED, Reason.PAUSED_BY_USER)

    def on_log(self, host: str, juid: str, attempt: int, offset: int, data: bytes) -> bool:
        """Bytes of an attempt's log."""
        live, job = self._host(host), self._jobs.known(juid)
        if live is None or job is None or not self._is_current(live, job, {"attempt": attempt}):
            return True
        return self._logs.append(juid, attempt, offset, data)

    def on_machine(self, host: str, machine: dict[str, Any]) -> None:
        """Load, memory and GPUs of a host."""
        live = self._host(host)
        if live:
            live.machine, live.heard_at = machine, time.time()

    def on_lost(self, host: str, message: str) -> None:
        """Unreachable is not failed: jobs there are left as they are, and say so."""
        live = self._host(host)
        if live is None:
            return
        was_connected = live.connected
        live.attempts = None
        live.message = message or "the connection ended"
        if was_connected:
            log.warning("%s: %s", host, live.message)
        for job in self._on(live):
            if job["reason"] != Reason.HOST_UNREACHABLE:
                self._jobs.change(job["juid"], None, Reason.HOST_UNREACHABLE, f"{live.message}; the job is kept")
        self._wake()

    def log_offsets(self, host: str) -> dict[str, int]:
        """How much of each log on this host has arrived."""
        live = self._host(host)
        if live is None:
            return {}
        jobs = [*self._on(live), *(job for job in self._jobs.in_states(State.CLEANUP) if self._is_on(live, job))]
        return {attempt_key(job): self._logs.size(job["juid"], job["attempt"]) for job in jobs}

    def _host(self, key: str) -> LiveHost | None:
        provider, _, name = key.partition("/")
        return self._board.get(provider, name)

    def _on(self, live: LiveHost) -> list[Job]:
        return [job for job in self._jobs.in_states(*HOLDING) if self._is_on(live, job)]

    def _is_on(self, live: LiveHost, job: Job) -> bool:
        return host_key(job) == live.key

    def _is_current(self, live: LiveHost, job: Job, event: dict[str, Any]) -> bool:
        return self._is_on(live, job) and int(event["attempt"]) == job["attempt"]

    def _ended(self, job: Job, event: dict[str, Any]) -> None:
        juid = job["juid"]
        self._logs.sync(juid, job["attempt"])
        if self._jobs.is_over(job) or job["state"] == State.CLEANUP:
            return
        state, reason = State(event["state"]), str(event["reason"])
        by_user = reason == Reason.CANCELLED and job["cancel_requested"]
        outcome = {
            "state": str(state),
            "reason": str(Reason.CANCELLED_BY_USER) if by_user else reason,
            "message": None if by_user else event.get("message"),
        }
        started, ended = event.get("started_at"), event.get("ended_at") or event["ts"]
        self._jobs.change(
            juid,
            State.CLEANUP,
            Reason.COLLECTING,
            handed=True,
            phase=None,
            on_host=True,
            outcome=outcome,
            exit_code=event.get("exit_code"),
            max_rss_mb=event.get("max_rss_mb"),
            started_at=iso(started) if started else job["started_at"],
            finished_at=iso(ended),
        )
        if not job["persist"] or started is None:
            finish(self._jobs, self._jobs.get(juid))
        self._logs.wake(juid)
        self._wake()


def finish(jobs: JobBook, job: Job, note: str = "") -> None:
    """From CLEANUP to the state that the attempt's own end calls for."""
    outcome = job["outcome"] or {"state": State.LOST, "reason": Reason.EXIT_UNKNOWN, "message": None}
    message = outcome["message"] or states.sentence(outcome["reason"], job["juid"], job["provider"])
    jobs.change(job["juid"], State(outcome["state"]), outcome["reason"], f"{message} {note}".strip())


def attempt_key(job: Job) -> str:
    """``JUID.n`` of a job's current attempt."""
    return f"{job['juid']}.{job['attempt']}"


def _back(job: Job) -> Reason:
    return {State.RUNNING: Reason.STARTED, State.PAUSED: Reason.PAUSED_BY_USER}.get(
        State(job["state"]), Reason.ACCEPTED if job["handed"] else Reason.DISPATCHED
    )
