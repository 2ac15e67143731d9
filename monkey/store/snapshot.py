"""`state.json`: the whole record in TinyDB's format, with a checksum for each document.

One document a line, so that it is written and read without ever being in memory as one piece:

    {
    "_journal": {
    "1": {"_crc":"0f3a21bc","seq":7,"documents":2}
    },
    "jobs": {
    "1": {"_crc":"…","_key":"26-11-21-001","_facts":["QUEUED","kob","mnist","lab",false],"juid":…},
    …
    }
    }

`_crc` is the CRC-32 of the table's name and of everything in the document behind `_crc`; `_facts` is what the jobs are
found by, so that opening the store parses no document. TinyDB's own JSONStorage overwrites the file in place, so that
a kill or a full disk leaves it unreadable (FACTS, TinyDB): this file is replaced whole.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import sync_folder

from monkey.store.changes import Encoded, dump
from monkey.store.rows import Rows

JOURNAL_TABLE = "_journal"
"""Table of one document `{"seq": N, "documents": N}`: the last journal record that the file contains, and its size."""

_BUFFER_BYTES = 1 << 20


def checksum(table: str, body: bytes) -> int:
    """The checksum of a document whose text behind its `_crc` is `body`."""
    return zlib.crc32(body, zlib.crc32(table.encode()))


def document(table: str, body: str) -> str:
    """A document as it stands in the file, from its text behind `_crc`."""
    return f'{{"_crc":"{checksum(table, body.encode()):08x}",{body}'


def body_of(entry: Encoded) -> str:
    """What stands behind `_crc` in the document of an entry that is put."""
    assert entry.text is not None
    rest = entry.text[1:]
    facts = "" if entry.facts is None else f',"_facts":{dump(entry.facts)}'
    return f'"_key":{dump(entry.key)}{facts}{"" if rest == "}" else ","}{rest}'


def journal_body(seq: int, documents: int) -> str:
    """What stands behind `_crc` in the document of the table `_journal`."""
    return f'"seq":{seq},"documents":{documents}}}'


def _lines(seq: int, rows: Rows) -> Iterator[str]:
    sizes = rows.sizes()
    texts: dict[str, Iterable[str]] = {JOURNAL_TABLE: [journal_body(seq, sum(sizes.values()))]}
    texts |= {name: map(body_of, rows.entries(name)) for name in sizes}
    sizes = {JOURNAL_TABLE: 1, **sizes}
    yield "{\n"
    for i, (name, bodies) in enumerate(texts.items(), 1):
        yield f"{dump(name)}: {{\n"
        for n, body in enumerate(bodies, 1):
            yield f'"{n}": {document(name, body)}{"," if n < sizes[name] else ""}\n'
        yield "},\n" if i < len(texts) else "}\n"
    yield "}\n"


def write_snapshot(path: Path, seq: int, rows: Rows) -> int:
    """Replace the file by these rows and return its size in bytes. Raises OSError; the old file then still stands."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", buffering=_BUFFER_BYTES) as file:
            file.writelines(line.encode("ascii") for line in _lines(seq, rows))
            file.flush()
            os.fsync(fd)
            size = os.fstat(fd).st_size
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return size
