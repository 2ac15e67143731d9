"""The daemon's side of keepers: forking, following, reaping them, and putting another in the place of a killed one."""

from __future__ import annotations

import os
import selectors
import signal
import time
from typing import Callable, Dict, List, Optional, Set

from . import keeper
from .attempt import Attempt
from .files import boot_id, write_json
from .processes import Identity, identity, look, scan, send
from .reporting import complain

# Without pidfd_open(2) (Python 3.8, Linux before 5.3) adopted keepers are looked at this often; their own word comes at
# once. Also the time after which what a full disk hindered is tried again.
LOOK_AGAIN_S = 1.0
_MAX_BACKOFF_S = 30.0
# A keeper that is stopped is killed when its attempt should have been over for so long.
_STUCK_S = 2.0
# So many keepers of one attempt may die before the next one has to wait.
_REPLACED_AT_ONCE = 3


class _Kept:
    """What the daemon knows of an attempt that was started."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.pid = 0  # of its keeper when that is our child
        self.pidfd = -1  # of a keeper that another daemon forked
        self.replaced = 0
        self.again_at = 0.0


class Keepers:
    """All attempts that run. ``report`` is called when the files of one have news; it calls ``drop`` at the end."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        umask: int,
        report: Callable[[Attempt], None],
        leave_daemon: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._umask = umask
        self._report = report
        self._leave_daemon = leave_daemon
        self._kept: Dict[str, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> Optional[Attempt]:
        """A running attempt by its key."""
        item = self._kept.get(key)
        return item.attempt if item else None

    def start(self, attempt: Attempt) -> None:
        """Fork a keeper for an attempt whose start is on record."""
        item = self._kept[attempt.key] = _Kept(attempt)
        self._fork(item)

    def adopt(self, attempt: Attempt) -> None:
        """Follow an attempt that another daemon started."""
        item = self._kept[attempt.key] = _Kept(attempt)
        self._replace(item)

    def drop(self, key: str) -> None:
        """An attempt ended."""
        item = self._kept.pop(key, None)
        if item:
            self._forget_pidfd(item)

    def next_s(self) -> List[float]:
        """In how many seconds ``look_again`` is due."""
        now = time.monotonic()
        due = [item.again_at - now for item in self._kept.values() if item.again_at]
        if any(self._unfollowed(item) for item in self._kept.values()):
            due.append(LOOK_AGAIN_S)
        return due

    @staticmethod
    def _unfollowed(item: _Kept) -> bool:
        return not item.pid and item.pidfd < 0 and not item.again_at

    def look_again(self) -> None:
        """Look at keepers that cannot be followed, and replace those whose time has come."""
        for item in list(self._kept.values()):
            if item.again_at:
                if item.again_at <= time.monotonic():
                    item.again_at = 0.0
                    self._replace(item)
            elif self._unfollowed(item):
                self._report(item.attempt)
                if item.attempt.key in self._kept:
                    self._replace(item)

    def _fork(self, item: _Kept) -> None:
        key = item.attempt.key
        try:
            lock = item.attempt.keeper_lock()
        except OSError as error:
            complain(f"{key}: keeper.lock: {error}")
            item.again_at = time.monotonic() + LOOK_AGAIN_S
            return
        if lock is None:
            self._follow(item)
            return
        try:
            item.pid = keeper.fork(item.attempt, lock, self._umask, self._leave_daemon)
        except OSError as error:
            complain(f"{key}: fork: {error}")
            item.again_at = time.monotonic() + LOOK_AGAIN_S
        finally:
            os.close(lock)

    def _follow(self, item: _Kept) -> None:
        """Follow a keeper that lives and is not our child."""
        pid = item.attempt.read("keeper.json").get("pid", 0)
        item.pid = 0
        if item.pidfd >= 0 or not pid or not hasattr(os, "pidfd_open"):
            return
        try:
            item.pidfd = os.pidfd_open(pid)
        except OSError:
            return

        def gone(_mask: int) -> None:
            self._forget_pidfd(item)
            self._report(item.attempt)
            if item.attempt.key in self._kept:
                self._replace(item)

        self._selector.register(item.pidfd, selectors.EVENT_READ, gone)

    def _forget_pidfd(self, item: _Kept) -> None:
        if item.pidfd >= 0:
            self._selector.unregister(item.pidfd)
            os.close(item.pidfd)
            item.pidfd = -1

    def _replace(self, item: _Kept) -> None:
        """There may be no keeper: then another takes its place."""
        if item.attempt.exit() is not None:
            self._report(item.attempt)
            return
        self._fork(item)

    def reap(self) -> None:
        """Take children that ended: keepers, and what killed keepers left to us."""
        keepers = {item.pid: item for item in self._kept.values() if item.pid}
        gone = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid in keepers:
                gone.append(keepers[pid])
            else:
                self._hand_over(pid, status, round(usage.ru_maxrss / 1024.0, 1))
        dead = []
        for item in gone:
            item.pid = 0
            self._report(item.attempt)
            if item.attempt.key in self._kept:
                dead.append(item)
        if len(dead) == 1:
            self._note_strays(dead[0].attempt)
        for item in dead:
            item.replaced += 1
            if item.replaced <= _REPLACED_AT_ONCE:
                self._replace(item)
            else:
                item.again_at = time.monotonic() + min(2.0 ** (item.replaced - _REPLACED_AT_ONCE), _MAX_BACKOFF_S)

    def _hand_over(self, pid: int, status: int, max_rss_mb: float) -> None:
        """An orphan of a killed keeper ended as our child: if it was a command, its status is for the next keeper."""
        for item in self._kept.values():
            if item.attempt.read("command.json").get("pid") != pid:
                continue
            try:
                write_json(item.attempt.path("reaped.json"), {"pid": pid, "status": status, "max_rss_mb": max_rss_mb})
            except OSError as error:
                complain(f"{item.attempt.key}: exit status {status} of pid {pid}: {error}")
            self.nudge(item.attempt.key)

    def _note_strays(self, attempt: Attempt) -> None:
        """Orphans that became our children when this one keeper was killed are its own, whatever they changed."""
        keepers = {item.pid for item in self._kept.values()}
        known: Set[int] = set()
        for item in self._kept.values():
            known.update(pid for pid, _start in item.attempt.read("strays.json").get("pids", []))
        me = os.getpid()
        found = [(one.pid, one.start) for one in scan().values() if one.ppid == me and one.pid not in keepers | known]
        if found:
            try:
                write_json(attempt.path("strays.json"), {"pids": found})
            except OSError as error:
                complain(f"{attempt.key}: strays.json: {error}")

    def nudge(self, key: str) -> None:
        """Tell a keeper to look at its files. One that has no handler yet has not looked yet."""
        item = self._kept.get(key)
        who = self._who(item) if item else None
        if who:
            send(who, signal.SIGUSR1)
            # Somebody may have stopped it; one that runs does not notice.
            send(who, signal.SIGCONT)

    @staticmethod
    def _who(item: _Kept) -> Optional[Identity]:
        if item.pid:
            return identity(item.pid)
        found = item.attempt.read("keeper.json")
        return (found["pid"], found["start"]) if found and found.get("boot") == boot_id() else None

    def press(self, key: str, late_s: float, grace_s: float) -> None:
        """The lease of an attempt ended ``late_s`` ago: see that its keeper does its work, if need be another one."""
        item = self._kept.get(key)
        if item is None:
            return
        if item.again_at:
            item.again_at = 0.0
            self._replace(item)
            return
        who = self._who(item)
        process = look(who[0]) if who else None
        if who is None or process is None or process.start != who[1]:
            return
        if process.state in "Tt" and late_s >= grace_s + _STUCK_S:
            complain(f"{key}: its lease ended and its keeper (pid {who[0]}) is stopped: killed and replaced")
            send(who, signal.SIGKILL)
        else:
            self.nudge(key)
