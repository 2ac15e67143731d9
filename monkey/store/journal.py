"""`state.journal`: what was acknowledged since `state.json` was written, open for its one writer."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from monkey.store.errors import StoreFullError, StoreLockedError, StoreWriteError
from monkey.store.records import Record, TornTail, line_for, scan

# EFBIG: beyond RLIMIT_FSIZE or what the file system can hold.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def as_store_error(error: OSError, path: Path, what: str) -> StoreFullError | StoreWriteError:
    """The store's error for a failed write of `path`."""
    if error.errno in _NO_ROOM:
        return StoreFullError(f"no room for {path}: {what}; free some space and try again")
    return StoreWriteError(f"cannot write {path} ({error.strerror}): {what}")


def lock(fd: int, path: Path, *, shared: bool = False) -> None:
    """Lock an open journal against other openers; raises StoreLockedError or StoreWriteError."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise StoreLockedError(f"{path} is in use by another process: one core per folder") from error
        raise StoreWriteError(f"cannot lock {path} ({error.strerror})") from error


class Journal:
    """The open journal; it is locked for this opener, and its end is always the end of a whole record."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises StoreLockedError when another opener has it, StoreWriteError or StoreFullError when it cannot be made.
        """
        self.path = path
        self._broken = False
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise as_store_error(error, path, "the store cannot be opened") from error
        try:
            lock(self._fd, path)
        except BaseException:
            os.close(self._fd)
            raise
        self._size = os.fstat(self._fd).st_size

    @property
    def size_bytes(self) -> int:
        """Size of the records."""
        return self._size

    def replay(self) -> Iterator[Record]:
        """Every whole record from the start. A torn one at the end (never acknowledged) is cut off.

        Raises StoreCorruptError for damage that a torn write cannot explain (`records`).
        """
        with open(self._fd, "rb", buffering=1 << 20, closefd=False) as file:
            file.seek(0)
            for found in scan(file, self.path):
                if isinstance(found, TornTail):
                    self._cut_to(found.start)
                    return
                if found.lacks_line_break:
                    # The record is whole, but the next one needs a line of its own.
                    self._cut_to(found.start)
                    self._write(line_for(found.seq, found.text))
                yield found

    def append(self, seq: int, text: str) -> None:
        """Write a record and return when it is on the disk.

        Raises StoreFullError or StoreWriteError; the file is then as it was before.
        """
        self._check_sound()
        self._write(line_for(seq, text))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size could be written now: tried with NUL bytes that are cut off again.

        A kill meanwhile leaves a tail that the next opener drops. Raises StoreWriteError for any other failure.
        """
        self._check_sound()
        start = self._size
        try:
            self._write(b"\0" * max(size_bytes, 2))
        except StoreFullError:
            return False
        self._cut_to(start)
        return True

    def _check_sound(self) -> None:
        if self._broken:
            raise StoreWriteError(f"{self.path} failed before; stop the core, look at the disk, and start it again")

    def _write(self, line: bytes) -> None:
        start = self._size
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._fd, left) :]
            os.fdatasync(self._fd)
        except OSError as error:
            self._undo(start)
            raise as_store_error(error, self.path, "the change was refused") from error
        self._size = start + len(line)

    def _undo(self, start: int) -> None:
        try:
            self._cut_to(start)
        except StoreWriteError:
            self._broken = True

    def clear(self) -> None:
        """Forget every record (they are in `state.json` now). Raises StoreWriteError."""
        self._cut_to(0)

    def _cut_to(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
            self._size = size
            os.fdatasync(self._fd)
        except OSError as error:
            raise StoreWriteError(f"cannot cut {self.path} ({error.strerror})") from error

    def close(self) -> None:
        """Let the next opener in."""
        os.close(self._fd)
