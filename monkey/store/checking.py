"""Looking at a record record by record without changing anything: no compaction, no cut of a torn tail."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from monkey.store.changes import Encoded, Facts
from monkey.store.errors import StoreCorruptError
from monkey.store.journal import lock
from monkey.store.reading import Snapshot
from monkey.store.records import Record, TornTail, scan
from monkey.store.rows import Rows
from monkey.store.store import JOURNAL_NAME, STATE_NAME, changes_of, following

# A running core writes meanwhile: what looks like damage and is none is gone at the next look.
_LOOKS = 3


@dataclass(frozen=True)
class Checked:
    """What a record holds. `torn_bytes`: of a change that was never acknowledged; the next core drops them."""

    jobs: int
    documents: int
    seq: int
    state_bytes: int
    journal_bytes: int
    journal_records: int
    torn_bytes: int

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def check(folder: Path, *, running: bool = False) -> Checked:
    """Verify both files of the store in `folder`; a file that is missing has nothing in it.

    Args:
        folder: the store's.
        running: a core has the store open; else no core can open it while it is looked at.

    Raises:
        StoreCorruptError: names file and byte offset.
        StoreLockedError: it is open in another process, and `running` is false.
        OSError: a file cannot be read.
    """
    for _ in range(_LOOKS - 1 if running else 0):
        try:
            return load(folder, locked=False)[1]
        except StoreCorruptError:
            time.sleep(0.1)
    return load(folder, locked=not running)[1]


def load(folder: Path, *, locked: bool = True) -> tuple[Rows, Checked]:
    """The rows of a store that is not opened here, every document parsed; raises as `check`."""
    rows = Rows()
    seen = _Seen()
    with _reading(folder / JOURNAL_NAME, locked=locked) as journal:
        snapshot = Snapshot(folder / STATE_NAME)
        for row in snapshot.rows():
            _check_document(row, snapshot.path)
            rows.apply([row])
        seq = snapshot.seq
        if journal:
            for record in following(seq, seen.whole(journal, folder / JOURNAL_NAME), folder / JOURNAL_NAME):
                rows.apply(changes_of(record, folder / JOURNAL_NAME))
                seq = record.seq
    sizes = rows.sizes()
    size_bytes = seen.end + seen.torn_bytes
    found = Checked(
        sizes.get("jobs", 0), sum(sizes.values()), seq, snapshot.size_bytes, size_bytes, seen.records, seen.torn_bytes
    )
    return rows, found


class _Seen:
    """What went by while a journal was read."""

    def __init__(self) -> None:
        self.records = 0
        self.end = 0
        self.torn_bytes = 0

    def whole(self, journal: BinaryIO, path: Path) -> Iterator[Record]:
        for found in scan(journal, path):
            if isinstance(found, TornTail):
                self.torn_bytes = found.size_bytes
                return
            self.records += 1
            self.end = found.end - found.lacks_line_break
            yield found


def _check_document(row: Encoded, path: Path) -> None:
    try:
        doc = json.loads(row.text or "")
        sound = isinstance(doc, dict) and (row.facts is None or row.facts == Facts.of(doc))
    except ValueError:
        sound = False
    if not sound:
        raise StoreCorruptError(path, 0, f"{row.table} {row.key} has a right checksum and is no document of ours")


@contextmanager
def _reading(path: Path, *, locked: bool) -> Iterator[BinaryIO | None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    with open(fd, "rb", buffering=1 << 20) as file:
        if locked:
            lock(fd, path, shared=True)
        yield file


def read_record(folder: Path) -> tuple[int, list[Encoded]]:
    """As `BaseStore.entries`, of a store that is not opened and not changed; raises as `check`."""
    rows, found = load(folder)
    return found.seq, [entry for table in rows.sizes() for entry in rows.entries(table)]
