"""`state.journal`: one line `crc seq json` for each change that was acknowledged since `state.json` was written."""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from monkey.store.errors import StoreCorruptError, StoreFullError, StoreLockedError, StoreWriteError

# EFBIG: beyond RLIMIT_FSIZE or what the file system can hold.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True)
class Record:
    """A line of the journal: where it begins and ends in the file, its number and its JSON text."""

    start: int
    end: int
    seq: int
    text: str


def line_for(seq: int, text: str) -> bytes:
    """A record as it stands in the file; `crc` is the CRC-32 of `seq json`, eight hexadecimal digits."""
    body = f"{seq} {text}".encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse_line(line: bytes) -> tuple[int, str] | None:
    """Number and JSON text of a line without its line break, or None when it is not whole."""
    crc, _, body = line.partition(b" ")
    seq, _, text = body.partition(b" ")
    if len(crc) != 8 or crc != b"%08x" % zlib.crc32(body) or not seq.isdigit():
        return None
    try:
        return int(seq), text.decode("ascii")
    except UnicodeDecodeError:
        return None


def as_store_error(error: OSError, path: Path, what: str) -> StoreFullError | StoreWriteError:
    """The store's error for a failed write of `path`."""
    if error.errno in _NO_ROOM:
        return StoreFullError(f"no room for {path}: {what}; free some space and try again")
    return StoreWriteError(f"cannot write {path} ({error.strerror}): {what}")


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
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
                raise StoreLockedError(f"{path} is in use by another process: one core per folder") from error
            raise StoreWriteError(f"cannot lock {path} ({error.strerror})") from error
        self._size = os.fstat(self._fd).st_size

    @property
    def size_bytes(self) -> int:
        """Size of the records."""
        return self._size

    def replay(self) -> Iterator[Record]:
        """Every whole record from the start. A torn one at the end (never acknowledged) is cut off.

        Raises StoreCorruptError for damage that a torn write cannot explain: a bad record with good ones behind it,
        or a bad last record that is complete to its line break.
        """
        at = 0
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            lines = iter(file)
            for line in lines:
                whole = line.endswith(b"\n")
                parsed = parse_line(line[:-1] if whole else line)
                if parsed is None:
                    self._check_torn(at, line, lines)
                    self._cut_to(at)
                    return
                if not whole:
                    # Only the line break is missing: the record is whole, but the next one needs a line of its own.
                    self._cut_to(at)
                    self._write(line + b"\n")
                    yield Record(at, at + len(line) + 1, *parsed)
                    return
                yield Record(at, at + len(line), *parsed)
                at += len(line)

    def _check_torn(self, at: int, line: bytes, following: Iterator[bytes]) -> None:
        # A file that grew before its content arrived reads as NUL there; our records are text without any.
        complete = line.endswith(b"\n") and b"\0" not in line
        if not complete:
            complete = any(parse_line(later.rstrip(b"\n")) for later in following)
        if complete:
            raise StoreCorruptError(
                self.path,
                at,
                f"a record that was acknowledged cannot be read; keep a copy, then `truncate -s {at} {self.path}` "
                "goes back to what was before it",
            )

    def append(self, seq: int, text: str) -> None:
        """Write a record and return when it is on the disk.

        Raises StoreFullError or StoreWriteError; the file is then as it was before.
        """
        if self._broken:
            raise StoreWriteError(f"{self.path} failed before; stop the core, look at the disk, and start it again")
        self._write(line_for(seq, text))

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
