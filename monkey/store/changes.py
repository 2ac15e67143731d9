"""One change of the record, and its JSON form in the journal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

Doc = dict[str, Any]
"""A document: JSON values only, text keys. A key that begins with `_` is the store's own."""

TABLES = ("jobs", "hosts", "meta", "idempotency")
"""The tables that may be written."""


@dataclass(frozen=True)
class Change:
    """Put `doc` under `key` of `table`, or delete the key when `doc` is None."""

    table: str
    key: str
    doc: Doc | None

    @classmethod
    def put(cls, table: str, key: str, doc: Doc) -> Self:
        """Put a document."""
        return cls(table, key, doc)

    @classmethod
    def delete(cls, table: str, key: str) -> Self:
        """Delete a key."""
        return cls(table, key, None)


@dataclass(frozen=True)
class Encoded:
    """A change whose document is JSON text: what the store keeps, so that no caller can change it by accident."""

    table: str
    key: str
    text: str | None


def dump(value: object) -> str:
    """JSON in one line of ASCII. Raises ValueError or TypeError for what JSON cannot hold (NaN, sets, bytes …)."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def encode(changes: Iterable[Change]) -> list[Encoded]:
    """Check and encode changes; raises ValueError or TypeError when one cannot be kept as it is."""
    encoded = []
    for change in changes:
        if change.table not in TABLES:
            raise ValueError(f"no table {change.table!r} in the store")
        if not isinstance(change.key, str) or not change.key:
            raise TypeError(f"a key is a text that is not empty, not {change.key!r}")
        if change.doc is None:
            encoded.append(Encoded(change.table, change.key, None))
            continue
        if not isinstance(change.doc, dict):
            raise TypeError(f"a document is a dict, not {type(change.doc).__name__}")
        for name in change.doc:
            if not isinstance(name, str) or name.startswith("_"):
                raise ValueError(f"{change.table} {change.key}: {name!r} cannot be a field of a document")
        encoded.append(Encoded(change.table, change.key, dump(change.doc)))
    return encoded


def to_record(changes: Iterable[Encoded]) -> str:
    """The changes as one JSON text: a list of `[table, key, document or null]`."""
    parts = (f"[{dump(c.table)},{dump(c.key)},{'null' if c.text is None else c.text}]" for c in changes)
    return "[" + ",".join(parts) + "]"


def from_record(text: str) -> list[Encoded]:
    """The reverse of `to_record`. Raises ValueError when the text is no such list."""
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError("not a list of changes")
    changes = []
    for item in value:
        match item:
            case [str(table), str(key), None]:
                changes.append(Encoded(table, key, None))
            case [str(table), str(key), dict(doc)]:
                changes.append(Encoded(table, key, dump(doc)))
            case _:
                raise ValueError("not a list of changes")
    return changes
