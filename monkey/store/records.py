"""The lines of `state.journal`, and how a torn end is told from damage.

One line `crc length seq json` for each acknowledged change. `crc` is the CRC-32 of `length seq json`, eight hexadecimal
digits; `length` counts the bytes of the whole line with its line break.

A record that was being written when the machine or the core died was never acknowledged, and is dropped. Its write can
have left two things: a beginning of the line (shorter than its `length`, without a line break), or a hole: sectors that
never reached the disk and read as NUL bytes. Everything else at the end was acknowledged and has been damaged
since: the core must not start as if it had never been. The two look alike only when whole sectors of an acknowledged
record were overwritten by NUL: then it is dropped, as file systems leave exactly that after a power cut. A lone
NUL byte counts as damage although a hole could be that small: to ask once too often is better than to lose a job.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from monkey.store.errors import StoreCorruptError

# What a disk writes at once or not at all, at least.
_SECTOR_BYTES = 512
_BEGINNING = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} [0-9]{0,12}|[0-9a-f]{8} ([0-9]{1,12}) [ -~]*")


@dataclass(frozen=True)
class Record:
    """A whole record: where it begins and ends in the file, its number and its JSON text."""

    start: int
    end: int
    seq: int
    text: str
    lacks_line_break: bool = False


@dataclass(frozen=True)
class TornTail:
    """What a write that was never acknowledged left at the end of the file."""

    start: int
    size_bytes: int


def line_for(seq: int, text: str) -> bytes:
    """A record as it stands in the file."""
    body = f"{seq} {text}".encode("ascii")
    rest = b"%d %s" % (_length(len(body)), body)
    return b"%08x %s\n" % (zlib.crc32(rest), rest)


def _length(body_bytes: int) -> int:
    """Length of a line with `seq json` of that size: what stands around it counts, the digits of the length too."""
    length = body_bytes + 12
    while len(str(length)) + body_bytes + 11 != length:
        length += 1
    return length


def parse_line(line: bytes) -> tuple[int, str] | None:
    """Number and JSON text of a line without its line break, or None when it is not whole."""
    rest = line[9:]
    if line[:9] != b"%08x " % zlib.crc32(rest):
        return None
    length, _, body = rest.partition(b" ")
    seq, _, text = body.partition(b" ")
    # The checksum holds, so this is what was written; the rest guards against a line that is not ours.
    if not length.isdigit() or int(length) != len(line) + 1 or not seq.isdigit() or not text.isascii():
        return None
    return int(seq), text.decode("ascii")


def scan(file: BinaryIO, path: Path) -> Iterator[Record | TornTail]:
    """Every whole record from the start of the file, then the torn tail where there is one.

    Raises StoreCorruptError for damage that a torn write cannot explain.
    """
    at = 0
    for line in file:
        whole = line.endswith(b"\n")
        parsed = parse_line(line[:-1] if whole else line)
        if parsed is None:
            tail = line + file.read()
            if not _is_torn(tail, at):
                raise StoreCorruptError(
                    path,
                    at,
                    f"a record that was acknowledged cannot be read; keep a copy, then `truncate -s {at} {path}` "
                    "goes back to what was before it",
                )
            yield TornTail(at, len(tail))
            return
        end = at + len(line) + (not whole)
        yield Record(at, end, *parsed, lacks_line_break=not whole)
        at = end


def _is_torn(tail: bytes, start: int) -> bool:
    beginning = _BEGINNING.fullmatch(tail)
    if beginning:
        length = beginning.group(1)
        return length is None or len(tail) < int(length)
    if any(parse_line(line) for line in tail.split(b"\n")[1:]):
        return False
    return tail.count(b"\0") > 1 and _is_full_of_holes(tail, start)


def _is_full_of_holes(tail: bytes, start: int) -> bool:
    """Whether every NUL byte of the tail lies in a sector that has nothing else of it."""
    at = 0
    while at < len(tail):
        end = min(at + _SECTOR_BYTES - (start + at) % _SECTOR_BYTES, len(tail))
        sector = tail[at:end]
        if b"\0" in sector and sector.strip(b"\0"):
            return False
        at = end
    return True
