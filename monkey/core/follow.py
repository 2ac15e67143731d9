"""What hosts say, turned into changes of jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from monkey.core.ending import conclude
from monkey.core.hosts import HostBoard
from monkey.core.leases import GRACE_S, Leases
from monkey.core.live import HOLDING, LiveJobs, host_key
from monkey.core.livehost import LiveHost
from monkey.core.orders import Orders
from monkey.jobs import Job, JobBook, iso
from monkey.logs import LogBook
from monkey.retrying import lease_s, surely_over_s
from monkey.states import TERMINAL, Reason, State
from monkey.store import StoreFullError

log = logging.getLogger("monkey.follow")


class Follower:
    """Hears all hosts. Replayed and late events change nothing.

    Args:
        board: the hosts.
        jobs: the jobs.
        live: those that have not ended.
        logs: their logs.
        orders: what hosts are told.
        leases: hears what hosts say of their clocks.
        wake: called when the scheduler should look again.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        live: LiveJobs,
        logs: LogBook,
        orders: Orders,
        leases: Leases,
        wake: Callable[[], None],
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._live = live
        self._logs = logs
        self._orders = orders
        self._leases = leases
        self._wake = wake

    def on_hello(self, host: str, hello: dict[str, Any]) -> None:
        """The host answers: adopt what it has, repeat what it has not heard, end what is no longer wanted there."""
        live = self._host(host)
        if live is None:
            return
        attempts = {(str(a["juid"]), int(a["attempt"])): str(a["state"]) for a in hello.get("attempts", [])}
        live.attempts = {f"{juid}.{n}": state for (juid, n), state in attempts.items()}
        live.answered()
        self._leases.said(live, hello)
        if not live.installed:
            self._board.record(live, installed=True)
        with self._jobs.together():
            for job in self._on(live):
                self._greet(live, job)
            for (juid, number), state in attempts.items():
                self._look_at_stray(live, juid, number, state)
        self._wake()

    def _greet(self, live: LiveHost, job: Job) -> None:
        """A job that is on record as being on this host."""
        juid, there = job["juid"], attempt_key(job) in (live.attempts or {})
        if there and not job["handed"]:
            self._jobs.change(juid, None, Reason.ACCEPTED, handed=True, phase="setup", on_host=True)
        elif not there and job["handed"] and self._arrived_since(live, juid):
            # The list was made before the launch was done: what the host has to say of it comes as events.
            return
        elif not there and job["handed"]:
            # It had the attempt on disk and has it no more: its disk was lost, and the end with it.
            message = f"host {live.entry.name} knows nothing of it any more; nobody can say how it ended"
            lost = {"state": State.LOST, "reason": Reason.HOST_LOST, "message": message}
            lease = lease_s(job)
            conclude(self._jobs, juid, lost, wait_s=0.0 if lease is None else surely_over_s(lease, GRACE_S))
            return
        elif job["reason"] == Reason.HOST_UNREACHABLE:
            self._jobs.change(juid, None, _back(job))
        if job["cancel_requested"]:
            self._orders.give("cancel", job)
        elif there and job["held"]:
            self._orders.give("pause", job)

    def _arrived_since(self, live: LiveHost, juid: str) -> bool:
        """Whether an attempt was brought to the host while this connection was already being made."""
        return live.stream is not None and self._live.handed_at.get(juid, 0.0) >= live.stream.began_at

    def _look_at_stray(self, live: LiveHost, juid: str, number: int, state: str) -> None:
        """An attempt on the host that is not, or no more, the one that its job is at there."""
        job = self._jobs.known(juid)
        if job is None or (self._is_on(live, job) and number == job["attempt"] and job["state"] in HOLDING):
            return
        if state not in TERMINAL:
            log.warning("%s: %s.%d is not wanted there any more: it is ended", live.key, juid, number)
            self._orders.give_to(live, "cancel", juid, number)
        for entry in job["attempts"]:
            if entry["attempt"] == number and not entry.get("on_host") and entry["host"] == live.entry.name:
                entry["on_host"] = True
                self._jobs.change(juid, attempts=job["attempts"], on_host=True)

    def on_event(self, host: str, event: dict[str, Any]) -> None:
        """One numbered event of an attempt."""
        live, juid = self._host(host), str(event["juid"])
        job = self._jobs.known(juid)
        if live is None or job is None or not self._is_current(live, job, event):
            return
        live.heard_at = time.monotonic()
        kind = event["type"]
        if live.attempts is not None:
            live.attempts[f"{juid}.{event['attempt']}"] = kind
        if job["state"] not in HOLDING:
            return
        if kind == "ended":
            self._ended(job, event)
        elif kind == "accepted" and not job["handed"]:
            self._jobs.change(juid, None, Reason.ACCEPTED, handed=True, phase="setup", on_host=True)
        elif kind == "setup":
            self._jobs.change(juid, None, Reason.SETTING_UP, handed=True, phase="setup", on_host=True)
        elif kind == "started" and job["state"] not in {State.RUNNING, State.PAUSED}:
            given = {"gpus_given": event["gpus"]} if "gpus" in event else {}
            begun = {"started_at": job["started_at"] or iso(event["ts"]), "handed": True, "on_host": True, **given}
            self._jobs.change(juid, State.RUNNING, Reason.STARTED, phase=None, **begun)
        elif kind == "paused" and job["state"] == State.RUNNING:
            self._jobs.change(juid, State.PAUSED, Reason.PAUSED_BY_USER)
        elif kind == "paused" and job["reason"] != Reason.PAUSED_BY_USER:
            # Before its command runs: it waits on the host, or its setup stands still.
            self._jobs.change(juid, None, Reason.PAUSED_BY_USER)
        elif kind == "resumed" and job["state"] == State.PAUSED:
            self._jobs.change(juid, State.RUNNING, Reason.RESUMED)
        elif kind == "resumed" and job["reason"] == Reason.PAUSED_BY_USER:
            self._jobs.change(juid, None, _back(job))

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
            live.machine, live.heard_at = machine, time.monotonic()
            self._leases.said(live, machine)

    def on_lost(self, host: str, message: str) -> None:
        """Unreachable is not failed: jobs there are left as they are, and say so."""
        live = self._host(host)
        if live is None:
            return
        said = message or "the connection ended"
        if live.connected:
            log.warning("%s: %s", host, said)
        live.attempts = None
        if live.installed:
            self._board.failed(live, said)
        try:
            with self._jobs.together():
                for job in self._on(live):
                    if job["reason"] != Reason.HOST_UNREACHABLE:
                        self._jobs.change(job["juid"], None, Reason.HOST_UNREACHABLE, f"{said}; the job is kept")
        except StoreFullError as error:
            # Only words about the jobs: the host's next hello or loss finds them as they are.
            log.error("%s: %s", host, error)
        self._wake()

    def log_offsets(self, host: str) -> dict[str, int]:
        """How much of each log on this host has arrived."""
        live = self._host(host)
        if live is None:
            return {}
        cleaning = (self._jobs.get(juid) for juid in self._live.in_state(State.CLEANUP))
        jobs = [*self._on(live), *(job for job in cleaning if self._is_on(live, job))]
        return {attempt_key(job): self._logs.size(job["juid"], job["attempt"]) for job in jobs}

    def _host(self, key: str) -> LiveHost | None:
        return self._board.by_key(key)

    def _on(self, live: LiveHost) -> list[Job]:
        return [self._jobs.get(juid) for juid in self._live.on(live.key)]

    def _is_on(self, live: LiveHost, job: Job) -> bool:
        return host_key(job) == live.key

    def _is_current(self, live: LiveHost, job: Job, event: dict[str, Any]) -> bool:
        return self._is_on(live, job) and int(event["attempt"]) == job["attempt"]

    def _ended(self, job: Job, event: dict[str, Any]) -> None:
        juid = job["juid"]
        self._logs.sync(juid, job["attempt"])
        state, reason = State(event["state"]), str(event["reason"])
        by_user = reason == Reason.CANCELLED and job["cancel_requested"]
        outcome = {
            "state": str(state),
            "reason": str(Reason.CANCELLED_BY_USER) if by_user else reason,
            "message": None if by_user else event.get("message"),
        }
        started, ended = event.get("started_at"), event.get("ended_at") or event["ts"]
        # In one piece: a crash leaves no job between its end and what follows from it.
        with self._jobs.together():
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
                conclude(self._jobs, juid)
        self._logs.wake(juid)
        self._wake()


def attempt_key(job: Job) -> str:
    """``JUID.n`` of a job's current attempt."""
    return f"{job['juid']}.{job['attempt']}"


def _back(job: Job) -> Reason:
    return {State.RUNNING: Reason.STARTED, State.PAUSED: Reason.PAUSED_BY_USER}.get(
        State(job["state"]), Reason.ACCEPTED if job["handed"] else Reason.DISPATCHED
    )
