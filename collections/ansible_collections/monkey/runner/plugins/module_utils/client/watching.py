"""What a keeper does while something of its attempt runs: wait, reap, and hold the limits."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from . import control
from .attempt import Attempt
from .files import boot_seconds, write_atomic
from .pausing import Pauses
from .processes import Identity, Tree, alive
from .timer import BootTimer

# Once its command is gone, how long to wait for the daemon (then its parent) to hand over the exit status.
_HAND_OVER_S = 3.0
# How fast a log may plausibly grow: with this much left the quota is looked at again after one second.
_LOG_BYTES_PER_S = 200e6


class Ended(NamedTuple):
    """How a process ended: wait status (None: cannot be known) and its peak memory in MiB."""

    status: Optional[int]
    max_rss_mb: Optional[float]

    def signal(self) -> Optional[int]:
        """The signal that killed it."""
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    def code(self) -> Optional[int]:
        """Its exit code, as a shell gives it: 128 + N for signal N."""
        if self.status is None:
            return None
        killed_by = self.signal()
        return os.WEXITSTATUS(self.status) if killed_by is None else 128 + killed_by


class Stop(NamedTuple):
    """Why the attempt has to be ended."""

    state: str
    reason: str
    message: str


class Watch:
    """Waits for processes of one attempt; holds its time limit, lease and log quota; pauses and resumes it."""

    def __init__(self, attempt: Attempt, spec: Dict[str, Any], tree: Tree) -> None:
        self._attempt = attempt
        self._spec = spec
        self._tree = tree
        self._expected: Set[int] = set()
        self._reaped: Dict[int, Ended] = {}
        self._pauses = Pauses(attempt)
        self._log_limit = attempt.log_limit()
        self._log_check = 0.0
        # Renewals are not announced: this is read again when it is reached, and after signals.
        self._lease_until = attempt.lease_until()
        self._timer = BootTimer()
        self.started: Optional[float] = None  # CLOCK_BOOTTIME of the command's start
        # False while what runs works for other attempts too: it is let finish, and the pause begins after it.
        self.stoppable = True
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda _number, _frame: None)

    def sleep(self, seconds: float, more: Tuple[int, ...] = ()) -> None:
        """Wait for a signal, for one of the descriptors ``more``, or at most ``seconds``; then reap."""
        readers = [self._wake_read, *self._timer.descriptors(), *more]
        ready, _w, _x = select.select(readers, [], [], min(max(0.0, seconds), self._timer.longest_s()))
        if self._wake_read in ready:
            try:
                os.read(self._wake_read, 4096)
            except OSError:
                pass
            self._lease_until = self._attempt.lease_until()
        self._timer.clear()
        self.reap()

    def reap(self) -> None:
        """Take every child that ended (orphans of the tree are children too)."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self._expected:
                self._expected.discard(pid)
                self._reaped[pid] = Ended(status, round(usage.ru_maxrss / 1024.0, 1))  # getrusage(2): in KiB

    def expect(self, pid: int) -> None:
        """Remember how this child ends; of other orphans, whose numbers may come again, nothing is kept."""
        self._expected.add(pid)

    def until_end(self, who: Identity, child: bool = True) -> Tuple[Optional[Ended], Optional[Stop]]:
        """Wait for a process; how it ended, or why it must be ended now."""
        follow = _Following(self._attempt, who) if not child else None
        try:
            while True:
                self.reap()
                ended = self._reaped.pop(who[0], None) if child else follow.ended() if follow else None
                if ended is not None:
                    return ended, None
                stop = self.why_stop()
                if stop is not None:
                    return None, stop
                self._pause_or_resume()
                self.hold_quota()
                more = follow.descriptors() if follow else []
                self._wait(follow.poll_s() if follow else 3600.0, tuple(more))
        finally:
            if follow:
                follow.close()

    def until_free(self) -> Optional[Stop]:
        """Wait while it is paused, before the next program of it is started; why it must be ended instead."""
        while True:
            stop = self.why_stop()
            if stop is not None:
                return stop
            self._pause_or_resume()
            if not self._pauses.paused:
                return None
            self._wait(3600.0)

    def after_stop(self, who: Identity) -> Optional[Ended]:
        """How a process ended that was made to end."""
        self.reap()
        return self._reaped.pop(who[0], None) or _handed_over(self._attempt, who)

    def _used_s(self) -> float:
        """Seconds that the command has run, without those that it was paused."""
        if self.started is None:
            return 0.0
        return boot_seconds() - self.started - self._pauses.seconds(self.started)

    def why_stop(self) -> Optional[Stop]:
        """Why the attempt has to be ended now, None when it may go on."""
        if self._attempt.has("cancel"):
            return Stop("CANCELLED", "CANCELLED", "Cancelled; all its processes were ended.")
        limit = self._spec["time_limit_s"]
        if limit is not None and self.started is not None and self._used_s() >= limit:
            return Stop("TIMED_OUT", "TIME_LIMIT", f"Ended when its time limit of {limit:g} s was reached.")
        if self._lease_until is not None and boot_seconds() >= self._lease_until:
            self._lease_until = self._attempt.lease_until()
            if self._lease_until is not None and boot_seconds() >= self._lease_until:
                text = f"Ended by its host: the lease of {self._spec['lease_s']:g} s was not renewed."
                return Stop("LOST", "LEASE_ENDED", text)
        return None

    def grace_s(self, stop: Optional[Stop]) -> float:
        """How long its processes may take to end. After a lease counted from its end: the core counts so too."""
        grace: float = self._spec["grace_s"]
        if stop is not None and stop.reason == "LEASE_ENDED" and self._lease_until is not None:
            return max(0.0, min(grace, self._lease_until + grace - boot_seconds()))
        return grace

    def _wait(self, seconds: float, more: Tuple[int, ...] = ()) -> None:
        """Sleep until something is due, at most ``seconds``; signals come at once."""
        due = [seconds]
        moments = [] if self._lease_until is None else [self._lease_until]
        if self._spec["time_limit_s"] is not None and self.started is not None and not self._pauses.paused:
            moments.append(boot_seconds() + self._spec["time_limit_s"] - self._used_s())
        if moments:
            self._timer.set(min(moments))
            due.append(min(moments) - boot_seconds())
        if self._log_limit is not None and not self._pauses.paused:
            due.append(self._log_check - time.monotonic())
        self.sleep(max(0.001, min(due)), more)

    def _pause_or_resume(self) -> None:
        wanted = self._pauses.wanted()
        if wanted == self._pauses.paused:
            return
        if not wanted:
            self._tree.resume()
        elif self.stoppable:
            self._tree.pause()
        try:
            self._pauses.change(float("inf") if self.started is None else self.started)
        except OSError:
            pass  # a full disk hides the pause, it does not hinder it
        control.wake(self._attempt.home, self._attempt.key)

    def hold_quota(self, now: bool = False) -> None:
        """Cut the log back to its quota and say so at its end: the first part of it is kept, the rest dropped."""
        if self._log_limit is None or (not now and time.monotonic() < self._log_check):
            return
        path = self._attempt.path("log")
        try:
            size = os.stat(path).st_size
            over = self._attempt.log_end(size)
            left = self._log_limit - size
            self._log_check = time.monotonic() + min(5.0, max(0.1, left / _LOG_BYTES_PER_S))
            if over:
                if size > over:
                    os.truncate(path, over)
                return
            if left >= 0:
                return
            quota = self._spec["log_quota_mb"]
            notice = f"\n[monkey] The log quota of {quota:g} MiB is used up: the rest is dropped.\n"
            data = notice.encode("utf-8")
            os.truncate(path, self._log_limit)
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, data, self._log_limit)
            finally:
                os.close(descriptor)
            end = self._log_limit + len(data)
            os.truncate(path, end)
            write_atomic(self._attempt.path("log_quota"), str(end).encode("ascii"))
            control.wake(self._attempt.home, self._attempt.key)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
                raise


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"


def _handed_over(attempt: Attempt, who: Identity) -> Optional[Ended]:
    """The exit status that the daemon reaped when the keeper before this one was killed."""
    reaped = attempt.read("reaped.json")
    if reaped.get("pid") != who[0]:
        return None
    return Ended(reaped["status"], reaped["max_rss_mb"])


class _Following:
    """A process that is not our child: its keeper was killed."""

    def __init__(self, attempt: Attempt, who: Identity) -> None:
        self._attempt = attempt
        self._who = who
        self._gone_since: Optional[float] = None
        self._descriptor = -1
        try:
            if hasattr(os, "pidfd_open") and alive(who):
                self._descriptor = os.pidfd_open(who[0])
        except OSError:
            pass

    def ended(self) -> Optional[Ended]:
        handed = _handed_over(self._attempt, self._who)
        if handed or alive(self._who):
            return handed
        if self._gone_since is None:
            self._gone_since = time.monotonic()
        return Ended(None, None) if time.monotonic() - self._gone_since > _HAND_OVER_S else None

    def descriptors(self) -> List[int]:
        return [self._descriptor] if self._descriptor >= 0 and self._gone_since is None else []

    def poll_s(self) -> float:
        if self._gone_since is not None:
            return 0.05
        return 3600.0 if self._descriptor >= 0 else 0.5

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
