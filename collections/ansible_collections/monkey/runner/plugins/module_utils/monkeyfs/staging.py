"""Copies of files that a running job is changing, held on its host until a collect has fetched them.

What a collect announces it must be able to send a second or more later; a checkpoint that is written ten times a second
is another one by then.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Optional, Set, Tuple

from .blobs import chunks_of, open_regular, stamp_of, write_all
from .errors import MonkeyFSError
from .folders import open_beneath, open_top, remove
from .scanning import hash_regular

FOLDER = "collect"
# What has not changed for this long will mostly stay as it is until it is fetched.
_YOUNG_NS = 10_000_000_000
# A file that is rewritten in place is empty or half written for a moment: it is read when nobody has written to it for
# this long. More than a tick of the kernel's clock, which mtimes are made of (10 ms at 100 Hz).
_STILL_NS = 20_000_000
_WAITS = 10
_TRIES = 5
# From here on a file that only grows is taken as far as it was.
_GROWN_TRIES = 2
_MOST_BYTES = 512 * 1000 * 1000
_FREE_SHARE = 4


class _NoRoom(Exception):
    """The copy cannot be held."""


class Room:
    """How much the copies of one collect may take of a host's disk: 512 MB, or a quarter of what is free if less."""

    def __init__(self, folder: str) -> None:
        free = os.statvfs(folder)
        self.left_bytes = min(_MOST_BYTES, free.f_bavail * free.f_frsize // _FREE_SHARE)


class Staging:
    """The copies for one attempt, as `collect/<sha256>` in its folder; `held` are their hashes."""

    def __init__(self, attempt_folder: str, room: Room) -> None:
        self.held: Set[str] = set()
        self._attempt_folder = attempt_folder
        self._room = room

    def read(self, raw: bytes, folder_fd: int, status: os.stat_result) -> Tuple[str, os.stat_result]:
        """(sha256, status) of the file `raw` in a folder, see `hash_regular`; one that changed lately is copied.

        The hash is then that of the copy. Where there is no room for a copy the file is only read. Raises
        MonkeyFSError when it keeps changing, OSError when it cannot be read.
        """
        # Also what comes from the future: a job may set times as it likes.
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _YOUNG_NS:
            try:
                return self._copy(raw, folder_fd)
            except _NoRoom:
                pass
        return hash_regular(raw, folder_fd, prefix_ok=True)

    def _copy(self, raw: bytes, folder_fd: int) -> Tuple[str, os.stat_result]:
        for attempt in range(_TRIES):
            # One descriptor from first to last: a file that was replaced by now is still the whole old one.
            fd = open_regular(raw, dir_fd=folder_fd, follow=False)
            try:
                before = _when_still(fd)
                if before.st_size > self._room.left_bytes:
                    raise _NoRoom
                sha = self._take(fd, before, attempt >= _GROWN_TRIES)
            finally:
                os.close(fd)
            if sha is not None:
                return sha, before
        raise MonkeyFSError("keeps changing while it is read")

    def _take(self, fd: int, before: os.stat_result, grown_ok: bool) -> Optional[str]:
        """Copies one file and names the copy: its sha256; None when the file changed meanwhile."""
        name = ".%d" % os.getpid()
        try:
            here = self._open_folder()
        except OSError as error:
            raise _NoRoom from error
        try:
            sha = _pour(fd, before.st_size, here, name)
            if sha is None or not (_same(before, os.fstat(fd)) or (grown_ok and _grown(fd, before, sha))):
                os.unlink(name, dir_fd=here)
                return None
            os.rename(name, sha, src_dir_fd=here, dst_dir_fd=here)
        finally:
            os.close(here)
        if sha not in self.held:
            self.held.add(sha)
            self._room.left_bytes -= before.st_size
        return sha

    def _open_folder(self) -> int:
        top_fd = open_top(self._attempt_folder)
        try:
            return open_beneath(top_fd, [FOLDER], create=True)
        finally:
            os.close(top_fd)


def clear(attempt_folder: str) -> None:
    """Removes all copies for an attempt. Raises OSError."""
    remove(os.path.join(attempt_folder, FOLDER))


def _when_still(fd: int) -> os.stat_result:
    """The status once nobody has written for a moment, or after some moments in any case."""
    status = os.fstat(fd)
    for _wait in range(_WAITS):
        left_ns = status.st_mtime_ns + _STILL_NS - time.time_ns()
        if left_ns <= 0:
            break
        time.sleep(min(left_ns, _STILL_NS) / 1e9)
        now = os.fstat(fd)
        unchanged = (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        status = now
        if unchanged:
            break
    return status


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    if stamp_of(before) == stamp_of(after):
        return True
    # Another file has taken the name: that changes the ctime, but no content.
    return after.st_nlink < before.st_nlink and stamp_of(before)[:3] == stamp_of(after)[:3]


def _grown(fd: int, before: os.stat_result, sha: str) -> bool:
    """Whether the file has only been appended to: it still begins with what was copied."""
    if os.fstat(fd).st_size <= before.st_size:
        return False
    os.lseek(fd, 0, os.SEEK_SET)
    digest = hashlib.sha256()
    for chunk in chunks_of(fd, before.st_size):
        digest.update(chunk)
    return digest.hexdigest() == sha


def _pour(fd: int, size: int, folder_fd: int, name: str) -> Optional[str]:
    """Copies `size` bytes into a new file: their sha256, None when there are not as many. Raises _NoRoom, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        out = os.open(name, flags, 0o600, dir_fd=folder_fd)
    except OSError as error:
        raise _NoRoom from error
    digest = hashlib.sha256()
    left = size
    try:
        for chunk in chunks_of(fd, size):
            digest.update(chunk)
            left -= len(chunk)
            try:
                write_all(out, chunk)
            except OSError as error:
                os.unlink(name, dir_fd=folder_fd)
                raise _NoRoom from error
    finally:
        os.close(out)
    return None if left else digest.hexdigest()
