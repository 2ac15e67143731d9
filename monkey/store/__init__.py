"""The record of a main node: one writer, a journal before every acknowledgement, TinyDB's file format at rest.

`Store.open(folder)` for the core, `MemoryStore()` for tests and dry runs; both have the interface of `BaseStore`.
`check` looks at a record without changing it; `export_lines` and `import_record` carry it elsewhere.
"""

from monkey.store.base import BaseStore, Transaction, number_change
from monkey.store.changes import TABLES, Change, Doc
from monkey.store.checking import Checked, check, read_record
from monkey.store.errors import (
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreWriteError,
)
from monkey.store.memory import MemoryStore
from monkey.store.storage import SnapshotStorage
from monkey.store.store import JOURNAL_NAME, STATE_NAME, Store
from monkey.store.transfer import Imported, export_lines, import_record

__all__ = [
    "JOURNAL_NAME",
    "STATE_NAME",
    "TABLES",
    "BaseStore",
    "Change",
    "Checked",
    "Doc",
    "Imported",
    "MemoryStore",
    "SnapshotStorage",
    "Store",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreWriteError",
    "Transaction",
    "check",
    "export_lines",
    "import_record",
    "number_change",
    "read_record",
]
