"""The store on disk: `state.json` and `state.journal` in one folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Self

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import sync_folder
from tinydb import TinyDB

from monkey.store.base import BaseStore
from monkey.store.changes import Encoded, dump, from_record, to_record
from monkey.store.errors import StoreCorruptError, StoreError, StoreWriteError
from monkey.store.journal import Journal, as_store_error
from monkey.store.snapshot import JOURNAL_TABLE, SnapshotStorage, rows_of, with_key

STATE_NAME = "state.json"
JOURNAL_NAME = "state.journal"

_MIB = 1024 * 1024
# Below this replaying the journal takes well under a second, so rewriting state.json gains nothing.
_COMPACT_AT_BYTES = 32 * _MIB

_log = logging.getLogger(__name__)


class Store(BaseStore):
    """See BaseStore. Opened with `Store.open`; after `close()` plain `TinyDB("state.json")` reads every table.

    A change is appended to the journal and synced before anyone sees it; its cost does not grow with the number of
    documents. The journal goes into `state.json` at `close()` and when it is larger than 32 MiB and twice
    `state.json`, so that this, too, costs each change a constant share.
    """

    def __init__(self, journal: Journal, database: TinyDB, compact_at_bytes: int) -> None:
        """Use `Store.open`."""
        super().__init__()
        self._journal = journal
        self._database = database
        self._compact_at_bytes = compact_at_bytes
        self._snapshot_bytes = 0
        self._retry_at_bytes = 0
        self._seq = 0

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
            store = cls(journal, TinyDB(folder / STATE_NAME, storage=SnapshotStorage), compact_at_bytes)
            store._load()
        except OSError as error:
            journal.close()
            raise StoreWriteError(f"cannot open the store in {folder} ({error.strerror})") from error
        except BaseException:
            journal.close()
            raise
        return store

    @property
    def _snapshot(self) -> SnapshotStorage:
        storage = self._database.storage
        assert isinstance(storage, SnapshotStorage)
        return storage

    def _load(self) -> None:
        path = self._snapshot.path
        self._seq, rows = rows_of(path, self._snapshot.read() or {})
        self._rows.apply(rows)
        self._snapshot_bytes = path.stat().st_size if path.exists() else 0
        expected: int | None = None
        for record in self._journal.replay():
            # Records up to the snapshot's number are left when a crash came between its rename and the cut.
            if record.seq > (self._seq + 1) or (expected is not None and record.seq != expected):
                wanted = self._seq + 1 if expected is None else expected
                raise StoreCorruptError(
                    self._journal.path, record.start, f"record {record.seq} where {wanted} was expected"
                )
            expected = record.seq + 1
            if record.seq <= self._seq:
                continue
            try:
                changes = from_record(record.text)
            except ValueError as error:
                raise StoreCorruptError(self._journal.path, record.start, str(error)) from error
            self._rows.apply(changes)
            self._seq = record.seq

    def _persist(self, changes: list[Encoded]) -> None:
        self._journal.append(self._seq + 1, to_record(changes))
        self._seq += 1

    def _after_commit(self) -> None:
        size = self._journal.size_bytes
        if size < max(self._compact_at_bytes, 2 * self._snapshot_bytes, self._retry_at_bytes):
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
        tables = {name: [with_key(key, text) for key, text in self._rows.texts(name)] for name in self._rows.tables()}
        tables[JOURNAL_TABLE] = [dump({"seq": self._seq})]
        try:
            self._snapshot_bytes = self._snapshot.write_texts(tables)
        except OSError as error:
            raise as_store_error(error, self._snapshot.path, f"{JOURNAL_NAME} keeps the changes") from error
        self._journal.clear()
        self._retry_at_bytes = 0

    def _close(self) -> None:
        try:
            self._compact()
        finally:
            self._database.close()
            self._journal.close()
