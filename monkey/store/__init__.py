"""The record of a main node: one writer, a journal before every acknowledgement, TinyDB's file format at rest.

`Store.open(folder)` for the core, `MemoryStore()` for tests and dry runs; both have the interface of `BaseStore`.
"""

from monkey.store.base import BaseStore, Transaction, number_change
from monkey.store.changes import TABLES, Change, Doc
from monkey.store.errors import (
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreWriteError,
)
from monkey.store.memory import MemoryStore
from monkey.store.store import JOURNAL_NAME, STATE_NAME, Store

__all__ = [
    "JOURNAL_NAME",
    "STATE_NAME",
    "TABLES",
    "BaseStore",
    "Change",
    "Doc",
    "MemoryStore",
    "Store",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreWriteError",
    "Transaction",
    "number_change",
]
