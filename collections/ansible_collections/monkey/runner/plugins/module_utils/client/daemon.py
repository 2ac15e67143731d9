"""The daemon: one per home, one thread, blocked in its selector while nothing happens.

It accepts attempts, starts them in order as slots allow, journals what becomes of them and answers on ``client.sock``.
All it knows it has from files: killed at any point, the next one goes on where it was.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import time
from typing import Any, Dict, List, Optional, Set

from .attempt import Attempt, accept, all_attempts, parse_key
from .files import FULL, ClientError, boot_id, boot_seconds, read_json, write_json
from .journal import Journal
from .keepers import LOOK_AGAIN_S, Keepers
from .leases import Leases
from .machine import disk_full_message
from .operations import Operations
from .pausing import Pauses
from .processes import become_subreaper, identity
from .reporting import Reporter, complain
from .server import Server
from .slots import Slots
from .spec import check_slots
from .timer import BootTimer

IDLE_EXIT_S = 900.0
# A keeper ends its attempt by itself; so long after the end of a lease it is looked at.
_PATIENCE_S = 0.5


class Daemon:
    """The daemon of ``home``, whose lock the caller holds. Raises ClientError, OSError.

    Without work and company for ``idle_exit_s`` it leaves: nothing stays behind for long where nobody comes back, and
    whoever needs a daemon again starts one.
    """

    def __init__(self, home: str, version: str, lock: int, umask: int, idle_exit_s: float = IDLE_EXIT_S) -> None:
        self.home = home
        self._version = version
        self._lock = lock
        self._stop = False
        self._queue: List[Attempt] = []
        # Attempts whose keeper did not say yet that they run, or that they were paused or resumed.
        self._expecting: Set[str] = set()
        self._order = 0
        self._looked = self._busy_at = time.monotonic()
        self._idle_exit_s = idle_exit_s
        self._server: Optional[Server] = None
        for name in ("attempts", "journal", "store", "data", "envs"):
            os.makedirs(os.path.join(home, name), 0o700, exist_ok=True)
        me, start = identity(os.getpid())
        about = {"pid": me, "start": start, "boot": boot_id(), "version": version, "started_at": time.time()}
        try:
            # Whoever finds this daemon stopped knows it by this (control.continue_stopped).
            write_json(os.path.join(home, "client.json"), about)
        except OSError as error:
            # On a full disk orders are taken all the same.
            complain(f"client.json: {error}")
        self.slots = Slots(check_slots(read_json(os.path.join(home, "slots.json")) or {}))
        self.journal = Journal(os.path.join(home, "journal"))
        self._reporter = Reporter(home, self.journal)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._signalled)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self._timer = BootTimer()
        for descriptor in self._timer.descriptors():
            self._selector.register(descriptor, selectors.EVENT_READ, lambda _mask: self._timer.clear())
        become_subreaper()
        self.keepers = Keepers(self._selector, umask, self.refresh, self._close_in_keeper)
        self.leases = Leases(self.keepers.nudge)
        self._adopt()
        self._server = Server(home, self._selector, Operations(self).handle, self.journal)

    def run(self) -> None:
        """Serve until asked to stop or SIGTERM. Attempts go on under their keepers."""
        self._start_waiting()
        while not self._stop:
            for key, mask in self._selector.select(self._next_s()):
                # One of these may have closed what another of them was about.
                if key.fd in self._selector.get_map():
                    key.data(mask)
            self._look_again()
            self._start_waiting()
            self._stop = self._stop or self._idle_s() >= self._idle_exit_s
        if self._server:
            self._server.close()
        for name in ("client.sock", "client.json"):
            try:
                os.unlink(os.path.join(self.home, name))
            except OSError:
                pass

    def _idle_s(self) -> float:
        """Seconds since there was last something to do or somebody connected."""
        if len(self.keepers) or self._queue or self._reporter.unsaid or (self._server and self._server.in_use):
            self._busy_at = time.monotonic()
        return time.monotonic() - self._busy_at

    # --- signals and time

    def _on_signal(self, number: int, _frame: Any) -> None:
        if number == signal.SIGTERM:
            self._stop = True

    def _signalled(self, _mask: int) -> None:
        try:
            os.read(self._wake_read, 4096)
        except OSError:
            pass
        self.keepers.reap()

    def _next_s(self) -> Optional[float]:
        due = self.keepers.next_s()
        if self._idle_s():
            due.append(self._idle_exit_s - self._idle_s())
        if self._reporter.unsaid or self._expecting:
            due.append(LOOK_AGAIN_S)
        lease = self.leases.due()
        self._timer.set(lease)
        if lease is not None:
            due.append(min(lease - boot_seconds(), self._timer.longest_s()))
        return max(0.0, min(due)) if due else None

    def _look_again(self) -> None:
        for key in list(self._reporter.unsaid):
            parsed = parse_key(key)
            if parsed:
                self.refresh(Attempt(self.home, *parsed))
        self.keepers.look_again()
        if time.monotonic() >= self._looked + LOOK_AGAIN_S:
            # A keeper's word is lost when the socket's queue is full.
            self._looked = time.monotonic()
            for key in list(self._expecting):
                self.woken(key)
        for attempt, late_s, grace_s in self.leases.over():
            if attempt.key not in self.keepers:
                self._end_waiting(attempt, "LOST", "LEASE_ENDED", "Its lease ended while it waited on the host.")
            elif late_s >= _PATIENCE_S:
                # Its keeper ends it, unless it is stopped.
                self.keepers.press(attempt.key, late_s, grace_s)

    # --- attempts

    def refresh(self, attempt: Attempt) -> None:
        """Journal what the files of an attempt tell and the journal does not."""
        # Looked at before the report: an end that comes between the two is not in it, and the keeper's own end, which
        # calls us again, must still find the attempt here.
        over = attempt.exit() is not None
        fresh = self._reporter.report(attempt)
        if attempt.key in self._expecting:
            pauses = Pauses(attempt)
            if attempt.has("command.json") and pauses.paused == pauses.wanted():
                self._expecting.discard(attempt.key)
        if over:
            self._expecting.discard(attempt.key)
            self.leases.drop(attempt.key)
            self.keepers.drop(attempt.key)
            self.slots.give_back(attempt.key)
            if attempt.key not in self._reporter.unsaid:
                self._reporter.forget(attempt)
        if fresh and self._server:
            self._server.publish()

    def _adopt(self) -> None:
        """Go on where the daemon before this one was."""
        waiting = []
        for attempt in all_attempts(self.home):
            if attempt.has("removed") or "ended" in self._reporter.told(attempt):
                self._reporter.forget(attempt)
                continue
            spec = attempt.spec()
            self._order = max(self._order, spec.get("order", 0))
            if attempt.exit() is not None:
                self.refresh(attempt)
            elif not spec:
                # A tombstone whose making was cut short.
                self.buried(attempt)
            elif attempt.has("start.json"):
                self.slots.hold(attempt.key, spec["resources"], attempt.read("start.json")["gpus"])
                self._expecting.add(attempt.key)
                self.leases.follow(attempt)
                self.refresh(attempt)
                self.keepers.adopt(attempt)
            else:
                waiting.append((spec["order"], attempt.key, attempt))
                self.leases.follow(attempt)
                self.refresh(attempt)
                self.held(attempt)
                if attempt.has("cancel"):
                    self.cancelled(attempt)
        self._queue = [attempt for _order, _key, attempt in sorted(waiting) if attempt.exit() is None]

    def accept(self, spec: Dict[str, Any]) -> None:
        """Take an attempt on: durable on return. Raises ClientError when the disk is full, OSError."""
        try:
            attempt = accept(self.home, spec, self._order + 1)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise ClientError(disk_full_message(self.home)) from error
        self._order += 1
        self._queue.append(attempt)
        self.leases.follow(attempt)
        self.refresh(attempt)

    def _start_waiting(self) -> None:
        """Start from the front of the queue what fits; one that waits holds back those behind it."""
        position = 0
        while position < len(self._queue) and not self._stop:
            attempt = self._queue[position]
            if attempt.has("pause"):
                position += 1
                continue
            indexes = self.slots.take(attempt.key, attempt.spec()["resources"])
            if indexes is None:
                return
            del self._queue[position]
            self._start(attempt, indexes)

    def _start(self, attempt: Attempt, gpus: List[int]) -> None:
        note = {"token": secrets.token_hex(16), "boot": boot_id(), "ts": time.time(), "gpus": gpus}
        try:
            # On disk before the fork. The keeper's own note (keeper.json, under its lock) then says that it began.
            write_json(attempt.path("start.json"), note, durable=True)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._end_waiting(attempt, "FAILED_SETUP", "DISK_FULL", disk_full_message(self.home))
            return
        self._expecting.add(attempt.key)
        self.keepers.start(attempt)
        self.refresh(attempt)

    def cancelled(self, attempt: Attempt) -> None:
        """A cancel of an attempt that is here was put on record."""
        if attempt.key in self.keepers:
            self.keepers.nudge(attempt.key)
            self.refresh(attempt)
        else:
            self._end_waiting(attempt, "CANCELLED", "CANCELLED", "Cancelled before it started.")

    def held(self, attempt: Attempt) -> None:
        """A pause or its end was asked for: a keeper does it; one that waits is passed over by ``_start_waiting``."""
        if attempt.key in self.keepers:
            self._expecting.add(attempt.key)
            self.keepers.nudge(attempt.key)
            return
        pauses = Pauses(attempt)
        if pauses.wanted() != pauses.paused:
            pauses.change(float("inf"))
            self.refresh(attempt)

    def buried(self, attempt: Attempt) -> None:
        """An attempt was cancelled before it arrived."""
        attempt.finish("CANCELLED", "CANCELLED", "Cancelled before it arrived on the host.")
        self.refresh(attempt)

    def _end_waiting(self, attempt: Attempt, state: str, reason: str, message: str) -> None:
        """End an attempt that never started."""
        attempt.finish(state, reason, message)
        self._queue = [other for other in self._queue if other.key != attempt.key]
        self.refresh(attempt)

    # --- for operations

    def about(self) -> Dict[str, Any]:
        """What the daemon says of itself."""
        return {
            "pid": os.getpid(),
            "version": self._version,
            "journal": self.journal.id,
            "last_seq": self.journal.last_seq,
            "acked": self.journal.acked,
            "running": len(self.keepers),
            "waiting": len(self._queue),
            "boot_s": boot_seconds(),
        }

    def leave(self) -> Dict[str, Any]:
        """Stop serving after this turn."""
        self._stop = True
        return {"pid": os.getpid()}

    def woken(self, key: str) -> None:
        """A keeper says that its attempt's files have news."""
        attempt = self.keepers.get(key)
        if attempt:
            self.refresh(attempt)

    def set_slots(self, given: Any) -> None:
        """Offer other slots from now on, kept for the next daemon. Raises ClientError, OSError."""
        slots = dict(read_json(os.path.join(self.home, "slots.json")) or {}, **check_slots(given))
        write_json(os.path.join(self.home, "slots.json"), slots, durable=True)
        self.slots.set(slots)

    def _close_in_keeper(self) -> None:
        """In a keeper that was just forked: close what is the daemon's."""
        try:
            if self._server:
                self._server.close()
            self._selector.close()
            self.journal.close()
            os.close(self._lock)
        except OSError as error:
            complain(f"in a new keeper: {error}")
