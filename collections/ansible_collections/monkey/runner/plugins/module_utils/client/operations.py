"""What can be asked of the daemon on ``client.sock``."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from .attempt import FINAL, Attempt, all_attempts, bury
from .files import ClientError, boot_seconds, touch
from .leases import check_renewal
from .spec import check_key, check_spec

if TYPE_CHECKING:
    from .daemon import Daemon


class Operations:
    """Answers requests with the daemon's means. Each raises ClientError for what it refuses, OSError."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._of_attempts = {
            "cancel": self._cancel,
            "pause": self._pause,
            "resume": self._resume,
            "remove": self._remove,
        }
        self._others: Dict[str, Callable[[Dict[str, Any]], Any]] = {
            "ping": lambda _request: daemon.about(),
            "renew": self._renew,
            "launch": self._launch,
            "slots": lambda request: daemon.set_slots(request.get("slots")),
            "list": lambda _request: listing(daemon.home),
            "wake": lambda request: daemon.woken(str(request.get("key"))),
            "ack": lambda request: daemon.journal.ack(int(request["seq"])),
            "shutdown": lambda _request: daemon.leave(),
        }

    def handle(self, request: Dict[str, Any]) -> Any:
        """The answer to one request."""
        operation = str(request.get("op"))
        if operation in self._of_attempts:
            attempt = Attempt(self._daemon.home, *check_key(request.get("juid"), request.get("attempt")))
            self._of_attempts[operation](attempt)
            return {"state": attempt.state()}
        if operation in self._others:
            return self._others[operation](request)
        raise ClientError(f"unknown op {operation!r}; known are {', '.join([*self._others, *self._of_attempts])}")

    def _launch(self, request: Dict[str, Any]) -> Dict[str, List[str]]:
        if not isinstance(request.get("attempts"), list):
            raise ClientError("attempts: expected a list")
        specs = [check_spec(spec) for spec in request["attempts"]]
        if request.get("slots"):
            self._daemon.set_slots(request["slots"])
        fresh = [spec for spec in specs if not Attempt(self._daemon.home, spec["juid"], spec["attempt"]).exists()]
        for spec in fresh:
            why = self._daemon.slots.refuse(spec["resources"])
            if why:
                raise ClientError(f"{spec['juid']}.{spec['attempt']}: {why}")
        answer: Dict[str, List[str]] = {"accepted": [], "known": [], "cancelled": []}
        for spec in specs:
            attempt = Attempt(self._daemon.home, spec["juid"], spec["attempt"])
            said = foretell(attempt)
            if said == "accepted":
                self._daemon.accept(spec)
            answer[said].append(attempt.key)
        return answer

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.exit() is not None or attempt.has("removed"):
            return
        if not attempt.exists():
            self._daemon.buried(bury(self._daemon.home, attempt.juid, attempt.number))
            return
        touch(attempt.path("cancel"), durable=True)
        self._daemon.cancelled(attempt)

    def _pause(self, attempt: Attempt) -> None:
        _refuse_ended(attempt)
        touch(attempt.path("pause"))
        self._daemon.held(attempt)

    def _resume(self, attempt: Attempt) -> None:
        _refuse_ended(attempt)
        try:
            os.unlink(attempt.path("pause"))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        self._daemon.held(attempt)

    def _renew(self, request: Dict[str, Any]) -> Dict[str, Any]:
        extra_s = request.get("extra_s", 0)
        keys = check_renewal(request.get("at"), request.get("attempts"), extra_s)
        answer = self._daemon.leases.renew(float(request["at"]), keys, float(extra_s))
        return dict(answer, boot_s=boot_seconds())

    def _remove(self, attempt: Attempt) -> None:
        state = attempt.state()
        if state in FINAL:
            attempt.strip()
        elif state not in ("UNKNOWN", "REMOVED"):
            raise ClientError(f"{attempt.key} is {state}: cancel it first")


def _refuse_ended(attempt: Attempt) -> None:
    state = attempt.state()
    if state == "UNKNOWN":
        raise ClientError(f"{attempt.key} is UNKNOWN on this host: it was not launched here yet; ask again once it is")
    if state in ("REMOVED", "CANCELLING", *FINAL):
        raise ClientError(f"{attempt.key} is {state} on this host: only what waits or runs can be paused or resumed")


def foretell(attempt: Attempt) -> str:
    """What a launch answers for an attempt: accepted, known, or cancelled."""
    if not attempt.exists():
        return "accepted"
    return "cancelled" if attempt.has("cancel") and not attempt.has("start.json") else "known"


def listing(home: str) -> List[Dict[str, Any]]:
    """Every attempt of a home that was not removed, as the stream's hello tells them."""
    found = []
    for attempt in all_attempts(home):
        state = attempt.state()
        if state not in ("REMOVED", "UNKNOWN"):
            item = {"juid": attempt.juid, "attempt": attempt.number, "state": state, "log_size": attempt.log_size()}
            if state not in FINAL:
                pause = attempt.read("pause.json")
                paused, changes = bool(pause.get("paused")), len(pause.get("phases", []))
                item.update({"phase": attempt.phase(), "paused": paused, "pauses": (changes + 1) // 2})
            found.append(item)
    return sorted(found, key=lambda item: (item["juid"], item["attempt"]))
