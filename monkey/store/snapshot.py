"""`state.json`: a TinyDB storage that replaces the file whole instead of overwriting it in place.

TinyDB's own JSONStorage overwrites, so that a kill or a full disk leaves it unreadable (FACTS, TinyDB).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import sync_folder
from tinydb.storages import Storage

from monkey.store.changes import Encoded, dump
from monkey.store.errors import StoreCorruptError

KEY_FIELD = "_key"
"""Field of each document in the file that holds its key (of a job: the JUID)."""
JOURNAL_TABLE = "_journal"
"""Table of one document `{"seq": N}`: the last journal record that the file contains."""


class SnapshotStorage(Storage):
    """The whole state as `{table: {number: document}}`, the format of TinyDB's own storage."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = Path(path)

    def read(self) -> dict[str, dict[str, Any]] | None:
        """The tables, or None when there is no file or it is empty. Raises StoreCorruptError."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if not raw.strip():
            return None
        try:
            tables = json.loads(raw.decode())
        except UnicodeDecodeError as error:
            raise StoreCorruptError(self.path, error.start, "not UTF-8") from error
        except json.JSONDecodeError as error:
            offset = len(error.doc[: error.pos].encode())
            raise StoreCorruptError(self.path, offset, f"not JSON: {error.msg}") from error
        if not isinstance(tables, dict) or not all(isinstance(rows, dict) for rows in tables.values()):
            raise StoreCorruptError(self.path, 0, "not a TinyDB file")
        return tables

    def write(self, data: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the file by these tables (TinyDB's interface). Raises OSError, and then the old file still stands."""
        self.write_texts({table: [dump(doc) for doc in rows.values()] for table, rows in data.items()})

    def write_texts(self, tables: Mapping[str, Iterable[str]]) -> int:
        """As `write`, from documents that are JSON text already; returns the size of the file in bytes."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="ascii") as file:
                for piece in _pieces(tables):
                    file.write(piece)
                file.flush()
                os.fsync(fd)
                size = os.fstat(fd).st_size
            temporary.replace(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(self.path.parent)
        return size


def _pieces(tables: Mapping[str, Iterable[str]]) -> Iterator[str]:
    yield "{"
    for i, (name, texts) in enumerate(tables.items()):
        yield f"{',' if i else ''}\n{dump(name)}: {{"
        for n, text in enumerate(texts, 1):
            yield f'{"," if n > 1 else ""}\n"{n}": {text}'
        yield "}"
    yield "\n}\n"


def with_key(key: str, text: str) -> str:
    """A document's JSON text with its key put in front."""
    rest = text[1:]
    return f'{{"{KEY_FIELD}":{dump(key)}{"" if rest == "}" else ","}{rest}'


def rows_of(path: Path, tables: Mapping[str, Mapping[str, Any]]) -> tuple[int, list[Encoded]]:
    """Sequence number and documents of a file that was read. Raises StoreCorruptError when they are not ours."""
    seq = 0
    rows: list[Encoded] = []
    for name, documents in tables.items():
        for number, doc in documents.items():
            if not isinstance(doc, dict):
                raise StoreCorruptError(path, 0, f"document {number} of table {name} is not an object")
            if name == JOURNAL_TABLE:
                seq = doc.get("seq", -1)
                continue
            key = doc.pop(KEY_FIELD, None)
            if not isinstance(key, str):
                raise StoreCorruptError(path, 0, f"document {number} of table {name} has no {KEY_FIELD}")
            rows.append(Encoded(name, key, dump(doc)))
    if not isinstance(seq, int) or seq < 0:
        raise StoreCorruptError(path, 0, f"table {JOURNAL_TABLE} holds no sequence number")
    return seq, rows
