"""One change of the record, and its JSON form in the journal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

Doc = dict[str, Any]
"""A document: JSON values only, text keys. A key that begins with `_` is the store's own."""

TABLES = ("jobs", "hosts", "meta", "idempotency")
"""The tables that may be written."""

_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


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


class Facts(NamedTuple):
    """What the store finds jobs by, taken out of the document once."""

    state: str | None
    nickname: str | None
    name: str | None
    provider: str | None
    on_host: bool

    @classmethod
    def of(cls, doc: Doc) -> Facts:
        """Of a job's document; a field that is no text counts as absent."""
        get = doc.get
        return cls.kept(get("state"), get("nickname"), get("name"), get("provider"), get("on_host"))

    @classmethod
    def kept(cls, state: object, nickname: object, name: object, provider: object, on_host: object) -> Facts:
        """From values as they came; equal texts are kept once."""
        return cls(_text(state), _text(nickname), _text(name), _text(provider), on_host is True)


def _text(value: object) -> str | None:
    return sys.intern(str(value)) if isinstance(value, str) else None


class Encoded(NamedTuple):
    """A change whose document is JSON text: what the store keeps, so that no caller can change it by accident."""

    table: str
    key: str
    text: str | None
    facts: Facts | None  # of a job that is put


def dump(value: object) -> str:
    """JSON in one line of ASCII. Raises ValueError or TypeError for what JSON cannot hold (NaN, sets, bytes …)."""
    return _ENCODER.encode(value)


def encode(changes: Iterable[Change]) -> list[Encoded]:
    """Check and encode changes; raises ValueError or TypeError when one cannot be kept as it is."""
    encoded = []
    for change in changes:
        if change.table not in TABLES:
            raise ValueError(f"no table {change.table!r} in the store")
        if not isinstance(change.key, str) or not change.key:
            raise TypeError(f"a key is a text that is not empty, not {change.key!r}")
        if change.doc is None:
            encoded.append(Encoded(change.table, change.key, None, None))
            continue
        if not isinstance(change.doc, dict):
            raise TypeError(f"a document is a dict, not {type(change.doc).__name__}")
        for name in change.doc:
            if not isinstance(name, str) or name.startswith("_"):
                raise ValueError(f"{change.table} {change.key}: {name!r} cannot be a field of a document")
        encoded.append(put_text(change.table, change.key, dump(change.doc), change.doc))
    return encoded


def put_text(table: str, key: str, text: str, doc: Doc) -> Encoded:
    """The change that puts `doc`, whose JSON text is `text`."""
    return Encoded(table, key, text, Facts.of(doc) if table == "jobs" else None)


def to_record(changes: Iterable[Encoded]) -> str:
    """The changes as one JSON text: a list of `[table, key, document or null]`."""
    parts = (f"[{dump(c.table)},{dump(c.key)},{'null' if c.text is None else c.text}]" for c in changes)
    return "[" + ",".join(parts) + "]"


def from_record(text: str) -> list[Encoded]:
    """The reverse of `to_record`: each document is parsed once and its text kept as it stands.

    Raises ValueError when the text is no such list.
    """
    changes: list[Encoded] = []
    at = 0
    while at < len(text) - 1:
        if text[at : at + 2] != (",[" if at else "[["):
            raise ValueError("not a list of changes")
        table, at = _DECODER.raw_decode(text, at + 2)
        key, at = _DECODER.raw_decode(text, at + 1)
        doc, end = _DECODER.raw_decode(text, at + 1)
        if table not in TABLES or not isinstance(key, str) or text[end : end + 1] != "]":
            raise ValueError("not a list of changes")
        if doc is None:
            changes.append(Encoded(table, key, None, None))
        elif isinstance(doc, dict):
            changes.append(put_text(table, key, text[at + 1 : end], doc))
        else:
            raise ValueError("not a list of changes")
        at = end + 1
    if not changes or text[at:] != "]":
        raise ValueError("not a list of changes")
    return changes
