"""`TinyDB(path, storage=SnapshotStorage)`: the record of a stopped core, to be corrected by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinydb.storages import Storage

from monkey.store.changes import Change, encode
from monkey.store.reading import Snapshot
from monkey.store.rows import Rows
from monkey.store.snapshot import write_snapshot


class SnapshotStorage(Storage):
    """What plain TinyDB shows of `state.json`, and it may be changed: checksums are made anew, the file is replaced.

    Only while no core runs, and after a clean stop: what is still in the journal is not seen. A document that plain
    TinyDB has changed does not match its checksum, and the core refuses to start with it.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)

    def read(self) -> dict[str, dict[str, Any]] | None:
        """The tables, or None when there is no file. Raises StoreCorruptError."""
        tables: dict[str, dict[str, Any]] = {}
        for row in Snapshot(self.path).rows():
            assert row.text is not None
            table = tables.setdefault(row.table, {})
            table[str(len(table) + 1)] = {"_key": row.key, **json.loads(row.text)}
        return tables or None

    def write(self, data: Mapping[str, Mapping[Any, Any]]) -> None:
        """Replace the file by these tables. Raises OSError, or ValueError or TypeError for what is no document."""
        changes = []
        for table, documents in data.items():
            for doc in documents.values():
                kept = {name: value for name, value in doc.items() if name != "_key"}
                changes.append(Change.put(table, doc.get("_key"), kept))
        rows = Rows()
        rows.apply(encode(changes))
        before = Snapshot(self.path)
        for _ in before.rows():
            pass
        write_snapshot(self.path, before.seq, rows)
