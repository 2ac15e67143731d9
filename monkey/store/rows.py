"""The tables in memory, with the indexes of the jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from monkey.states import TERMINAL
from monkey.store.changes import Encoded

_INDEXED = ("state", "nickname", "name")


class _Row(NamedTuple):
    order: int  # grows with each new key: the order in which keys came
    text: str


class Rows:
    """Documents as JSON text by table and key; jobs also by state, nickname and name.

    A change costs the same however many documents there are. Not safe for several threads: callers hold a lock.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, _Row]] = {}
        self._indexes: dict[str, dict[str, dict[str, int]]] = {field: {} for field in _INDEXED}
        self._indexed: dict[str, list[tuple[str, str]]] = {}
        self._next_order = 0

    def apply(self, changes: Iterable[Encoded]) -> None:
        """Make the changes; deleting what is not there changes nothing."""
        for change in changes:
            table = self._tables.setdefault(change.table, {})
            if change.text is None:
                table.pop(change.key, None)
                order = -1
            else:
                old = table.get(change.key)
                if old is None:
                    self._next_order += 1
                order = old.order if old else self._next_order
                table[change.key] = _Row(order, change.text)
            if change.table == "jobs":
                self._index(change.key, order, change.text)

    def _index(self, key: str, order: int, text: str | None) -> None:
        for field, value in self._indexed.pop(key, ()):
            keys = self._indexes[field][value]
            del keys[key]
            if not keys:
                del self._indexes[field][value]
        if text is None:
            return
        doc = json.loads(text)
        entries = [(field, doc[field]) for field in _INDEXED if isinstance(doc.get(field), str)]
        for field, value in entries:
            self._indexes[field].setdefault(value, {})[key] = order
        self._indexed[key] = entries

    def get(self, table: str, key: str) -> str | None:
        """The document as JSON text, or None."""
        row = self._tables.get(table, {}).get(key)
        return row.text if row else None

    def texts(self, table: str) -> list[tuple[str, str]]:
        """Key and JSON text of every document, in the order in which the keys came."""
        return [(key, row.text) for key, row in self._tables.get(table, {}).items()]

    def tables(self) -> list[str]:
        """Names of the tables that hold something."""
        return [name for name, rows in self._tables.items() if rows]

    def size(self, table: str) -> int:
        """Number of documents in a table."""
        return len(self._tables.get(table, {}))

    def keys_where(self, field: str, value: str) -> list[str]:
        """Keys of the jobs whose `field` (state, nickname or name) is `value`, in the order in which they came."""
        keys = self._indexes[field].get(value, {})
        return sorted(keys, key=keys.__getitem__)

    def newest_where(self, field: str, value: str) -> str | None:
        """The key among `keys_where` that came last."""
        keys = self._indexes[field].get(value)
        return max(keys, key=keys.__getitem__) if keys else None

    def counts(self, field: str) -> dict[str, int]:
        """How many jobs there are by value of `field`."""
        return {value: len(keys) for value, keys in self._indexes[field].items()}

    def nickname_is_live(self, nickname: str) -> bool:
        """Whether a job that has not ended has the nickname."""
        return any(
            not any(key in self._indexes["state"].get(state, ()) for state in TERMINAL)
            for key in self._indexes["nickname"].get(nickname, ())
        )
