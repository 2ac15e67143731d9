"""The store on disk: `state.json` and `state.journal` in one folder."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import sync_folder

from monkey.store.base import BaseStore
from monkey.store.changes import Encoded, from_record, to_record
from monkey.store.errors import StoreCorruptError, StoreError, StoreFullError, StoreWriteError
from monkey.store.journal import Journal, as_store_error
from monkey.store.reading import Snapshot
from monkey.store.records import Record
from monkey.store.snapshot import write_snapshot

STATE_NAME = "state.json"
JOURNAL_NAME = "state.journal"

_MIB = 1024 * 1024
# Below this replaying the journal takes well under a second, so rewriting state.json gains nothing.
_COMPACT_AT_BYTES = 32 * _MIB
# Room for a job and some changes of it, and for what a file system takes at a time.
_ROOM_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class Store(BaseStore):
    """See BaseStore. Opened with `Store.open`; after `close()` plain `TinyDB("state.json")` reads every table.

    A change is appended to the journal and synced before anyone sees it; its cost does not grow with the number of
    documents. The journal goes into `state.json` at `close()` and when it is larger than 32 MiB and than a quarter of
    `state.json`, so that this, too, costs each change a constant share. The commit that finds it so large waits for
    it: 1.1 s with 100,000 jobs (219 MB), once in about 27,000 changes. Opening takes 1.5 s then, 0.8 s more with
    a journal that is nearly full, and the process has 305 MB.
    """

    def __init__(self, folder: Path, journal: Journal, compact_at_bytes: int) -> None:
        """Use `Store.open`."""
        super().__init__()
        self._path = folder / STATE_NAME
        self._journal = journal
        self._compact_at_bytes = compact_at_bytes
        self._snapshot_bytes = 0
        self._retry_at_bytes = 0
        self._refused_bytes = 0

    @classmethod
    def open(cls, folder: Path, compact_at_bytes: int = _COMPACT_AT_BYTES) -> Self:
        """Open the store of a folder, made (0700) when missing.

        Raises StoreLockedError when it is open already, StoreCorruptError when a file is damaged (nothing is
        changed then), StoreWriteError or StoreFullError when the folder cannot be written.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise as_store_error(error, folder, "the store cannot be opened") from error
        journal = Journal(folder / JOURNAL_NAME)
        try:
            sync_folder(folder)
            (folder / (STATE_NAME + ".tmp")).unlink(missing_ok=True)
            store = cls(folder, journal, compact_at_bytes)
            with _no_garbage():
                store._load()
        except OSError as error:
            journal.close()
            raise StoreWriteError(f"cannot open the store in {folder} ({error.strerror})") from error
        except BaseException:
            journal.close()
            raise
        return store

    def _load(self) -> None:
        snapshot = Snapshot(self._path)
        self._rows.apply(snapshot.rows())
        self._snapshot_bytes = snapshot.size_bytes
        self._seq = snapshot.seq
        for record in following(snapshot.seq, self._journal.replay(), self._journal.path):
            self._rows.apply(changes_of(record, self._journal.path))
            self._seq = record.seq

    def _persist(self, changes: list[Encoded]) -> None:
        record = to_record(changes)
        try:
            self._journal.append(self._seq + 1, record)
        except StoreFullError:
            self._refused_bytes = len(record)
            raise

    def _has_room(self) -> bool:
        return self._journal.has_room(max(2 * self._refused_bytes, _ROOM_BYTES))

    def _after_commit(self) -> None:
        size = self._journal.size_bytes
        if size < max(self._compact_at_bytes, self._snapshot_bytes // 4, self._retry_at_bytes):
            return
        try:
            self.compact()
        except StoreError as error:
            # The change is safe in the journal; the next try comes when that has grown by half.
            self._retry_at_bytes = size * 3 // 2
            _log.warning("state.json was not renewed, the journal goes on: %s", error)

    def compact(self) -> None:
        """Write the whole state to `state.json` and cut the journal.

        Raises StoreFullError or StoreWriteError; the old `state.json` and the journal then still stand.
        """
        with self._writing:
            self._check_open()
            self._compact()

    def _compact(self) -> None:
        try:
            self._snapshot_bytes = write_snapshot(self._path, self._seq, self._rows)
        except OSError as error:
            raise as_store_error(error, self._path, f"{JOURNAL_NAME} keeps the changes") from error
        self._journal.clear()
        self._retry_at_bytes = 0

    def summary(self) -> dict[str, Any]:
        """As BaseStore's, with `state_bytes` and `journal_bytes`."""
        sizes = {"state_bytes": self._snapshot_bytes, "journal_bytes": self._journal.size_bytes}
        return {**super().summary(), **sizes}

    def _close(self) -> None:
        try:
            self._compact()
        finally:
            self._journal.close()


def following(seq: int, records: Iterable[Record], path: Path) -> Iterator[Record]:
    """The records of a journal that `state.json`, which ends with change `seq`, does not hold yet.

    Raises StoreCorruptError where a number is missing.
    """
    expected: int | None = None
    for record in records:
        # Records up to the snapshot's number are left when a crash came between its rename and the cut.
        if record.seq > (seq + 1) or (expected is not None and record.seq != expected):
            wanted = seq + 1 if expected is None else expected
            raise StoreCorruptError(path, record.start, f"record {record.seq} where {wanted} was expected")
        expected = record.seq + 1
        if record.seq > seq:
            seq = record.seq
            yield record


def changes_of(record: Record, path: Path) -> list[Encoded]:
    """The changes of a record. Raises StoreCorruptError."""
    try:
        return from_record(record.text)
    except ValueError as error:
        raise StoreCorruptError(path, record.start, str(error)) from error


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing that is loaded is garbage: looking through it again and again would take a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
