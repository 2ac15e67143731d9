"""Reading `state.json`: each line is checked before anything of it is believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from monkey.store.changes import TABLES, Encoded, Facts, dump, put_text
from monkey.store.errors import StoreCorruptError
from monkey.store.snapshot import JOURNAL_TABLE, checksum

_BUFFER_BYTES = 1 << 20
_DECODE = json.JSONDecoder().raw_decode
_ADVICE = "keep a copy, then bring an export back with `monkey state import FILE --replace`"


class Snapshot:
    """The documents of a `state.json`, one after the other.

    `seq` and `documents` are known as soon as the first row was asked for; `size_bytes` at the end.
    A file that is missing has no documents.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seq = 0
        self.documents = 0
        self.size_bytes = 0
        self._at = 0

    def rows(self) -> Iterator[Encoded]:
        """Every document. Raises StoreCorruptError, at the latest at the end, when one byte of the file is wrong."""
        try:
            with self.path.open("rb", buffering=_BUFFER_BYTES) as file:
                found = 0
                for row in self._rows(file):
                    found += 1
                    yield row
        except FileNotFoundError:
            return
        self.size_bytes = self._at
        if found != self.documents:
            self._fail(f"{found} documents where there were {self.documents}")

    def _fail(self, what: str, at: int | None = None) -> NoReturn:
        raise StoreCorruptError(self.path, self._at if at is None else at, f"{what}; {_ADVICE}")

    def _rows(self, file: BinaryIO) -> Iterator[Encoded]:
        first = file.readline()
        if not first:
            self._fail("the file is empty")
        if not first.startswith(b"{"):
            self._fail("not a TinyDB file")
        if first == b"{\n":
            self._at = len(first)
            yield from self._tables(file)
            return
        # Another program has written it: TinyDB itself puts everything on one line.
        whole = first + file.read()
        yield from self._foreign(whole)
        self._at = len(whole)

    # As we write it

    def _tables(self, file: BinaryIO) -> Iterator[Encoded]:
        left = [JOURNAL_TABLE, *TABLES]
        more = True
        while more:
            line = file.readline()
            table = next((name for name in left if line == b'"%s": {\n' % name.encode()), None)
            if table is None or (table == JOURNAL_TABLE) != (len(left) > len(TABLES)):
                self._fail("no table of the store begins here")
            left.remove(table)
            self._at += len(line)
            for body in self._bodies(file, table):
                if table == JOURNAL_TABLE:
                    self._journal(json.loads("{" + body))
                else:
                    yield entry_of(table, body)
            line = file.readline()
            more = line == b"},\n"
            if not more and line != b"}\n":
                self._fail("the table does not end here")
            self._at += len(line)
        if file.readline() != b"}\n" or file.read(1):
            self._fail("the file does not end here as it should")
        self._at += 2

    def _bodies(self, file: BinaryIO, table: str) -> Iterator[str]:
        """What stands behind `_crc` in each document of the table."""
        number = 0
        more = True
        while more:
            line = file.readline()
            number += 1
            begin = b'"%d": {"_crc":"' % number
            start = len(begin) + 10
            more = line.endswith(b"},\n")
            body = line[start : -2 if more else -1]
            if not line.startswith(begin) or line[len(begin) : start] != b'%08x",' % checksum(table, body):
                self._fail(f"document {number} of table {table} is not what was written")
            if not more and not line.endswith(b"}\n"):
                self._fail(f"document {number} of table {table} does not end as it should")
            yield body.decode("ascii")
            self._at += len(line)

    def _journal(self, doc: dict[str, Any]) -> None:
        self.seq, self.documents = doc.get("seq", -1), doc.get("documents", -1)
        if type(self.seq) is not int or type(self.documents) is not int or min(self.seq, self.documents) < 0:
            self._fail(f"table {JOURNAL_TABLE} holds no numbers")

    # As TinyDB writes it again

    def _foreign(self, whole: bytes) -> Iterator[Encoded]:
        try:
            tables = json.loads(whole.decode("ascii"), object_pairs_hook=_unique)
        except UnicodeDecodeError as error:
            self._fail("not ASCII", error.start)
        except json.JSONDecodeError as error:
            self._fail(f"not JSON: {error.msg}", error.pos)
        except ValueError as error:
            self._fail(str(error), 0)
        if not isinstance(tables, dict) or not all(isinstance(rows, dict) for rows in tables.values()):
            self._fail("not a TinyDB file", 0)
        found = tables.pop(JOURNAL_TABLE, {})
        if len(found) != 1:
            self._fail(f"table {JOURNAL_TABLE} does not hold one document", 0)
        for doc in found.values():
            self._check(whole, JOURNAL_TABLE, "1", doc)
            self._journal(doc)
        return self._foreign_rows(whole, tables)

    def _foreign_rows(self, whole: bytes, tables: dict[str, dict[str, Any]]) -> Iterator[Encoded]:
        for table, rows in tables.items():
            if rows and table not in TABLES:
                self._fail(f"there is no table {table!r} in the store", max(whole.find(dump(table).encode()), 0))
            for number, doc in rows.items():
                self._check(whole, table, number, doc)
                doc.pop("_facts", None)
                yield put_text(table, doc.pop("_key"), dump(doc), doc)

    def _check(self, whole: bytes, table: str, number: str, doc: Any) -> None:
        key = doc.get("_key") if isinstance(doc, dict) else None
        at = max(whole.find(dump(key).encode()), 0) if isinstance(key, str) else 0
        crc = doc.pop("_crc", None) if isinstance(doc, dict) else None
        if crc != f"{checksum(table, dump(doc)[1:].encode()):08x}":
            self._fail(f"document {number} of table {table} is not what was written", at)


def entry_of(table: str, body: str) -> Encoded:
    """The entry of a document whose checksum was right, from its text behind `_crc`; the reverse of `body_of`."""
    key, at = _DECODE(body, len('"_key":'))
    values = None
    if table == "jobs":
        values, at = _DECODE(body, at + len(',"_facts":'))
    text = "{" + body[at + (body[at] == ",") :]
    if values is None:
        return Encoded(table, key, text, None)
    if len(values) != len(Facts._fields):
        # Written by a version that finds jobs by something else.
        return put_text(table, key, text, json.loads(text))
    return Encoded(table, key, text, Facts.kept(*values))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found
