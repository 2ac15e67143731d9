"""A record as a stream of JSON lines, out of one store and into another.

    {"monkey_state":1,"core_version":"0.3.0","seq":17,"documents":2,"jobs":1,"crc":"…"}
    {"table":"jobs","key":"26-11-21-001","doc":{…},"crc":"…"}
    {"table":"meta","key":"day:26-11-21","doc":{"last":1},"crc":"…"}
    {"end":true,"documents":2,"crc":"…"}

`crc` is the CRC-32 of the same object without it, as compact ASCII JSON. Jobs come in the order in which they came.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import sync_folder

from monkey.errors import UsageProblem
from monkey.store.changes import TABLES, Change, Encoded, dump, encode
from monkey.store.checking import load
from monkey.store.errors import StoreCorruptError
from monkey.store.journal import Journal, as_store_error
from monkey.store.reading import Snapshot
from monkey.store.records import parse_line
from monkey.store.rows import Rows
from monkey.store.snapshot import write_snapshot
from monkey.store.store import JOURNAL_NAME, STATE_NAME

FORMAT = 1


def _sealed(body: str) -> bytes:
    return f'{body[:-1]},"crc":"{zlib.crc32(body.encode()):08x}"}}\n'.encode("ascii")


def export_lines(seq: int, entries: Sequence[Encoded], core_version: str) -> Iterator[bytes]:
    """The stream, line by line.

    Args:
        seq: number of the last change.
        entries: every document: `BaseStore.entries`.
        core_version: version of the program, for who reads it.
    """
    jobs = sum(entry.table == "jobs" for entry in entries)
    head = {"monkey_state": FORMAT, "core_version": core_version, "seq": seq, "documents": len(entries), "jobs": jobs}
    yield _sealed(dump(head))
    for entry in entries:
        yield _sealed(f'{{"table":{dump(entry.table)},"key":{dump(entry.key)},"doc":{entry.text}}}')
    yield _sealed(dump({"end": True, "documents": len(entries)}))


def read_export(source: Iterable[bytes], name: str) -> tuple[int, Rows]:
    """Number of the last change and the documents of a stream that is whole.

    Raises:
        UsageProblem: it is not; names `name` and the line.
    """
    rows = Rows()
    head: dict[str, Any] | None = None
    count = 0
    over = False
    for number, line in enumerate(source, 1):
        value = _opened(line, name, number)
        if over:
            raise UsageProblem(f"{name}:{number}", "expected nothing behind the last line of an export")
        if head is None:
            head = _head(value, name)
        elif value.get("end") is True:
            over = True
            if not count == value.get("documents") == head["documents"]:
                raise UsageProblem(f"{name}:{number}", f"{count} documents where {head['documents']} were exported")
        else:
            rows.apply(_document(value, name, number, rows))
            count += 1
    if head is None:
        raise UsageProblem(name, "is empty; expected what `monkey state export` wrote")
    if not over:
        raise UsageProblem(name, f"was cut: {count} of {head['documents']} documents and no last line; export it again")
    return head["seq"], rows


def _opened(line: bytes, name: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("ascii"))
    except ValueError:
        value = None
    if not isinstance(value, dict) or "crc" not in value:
        expected = "a line of `monkey state export`" if number > 1 else "what `monkey state export` wrote"
        raise UsageProblem(f"{name}:{number}", f"expected {expected}; this line is cut, changed or something else")
    crc = value.pop("crc")
    if crc != f"{zlib.crc32(dump(value).encode()):08x}" or not line.endswith(b"\n"):
        raise UsageProblem(f"{name}:{number}", "does not match its checksum: the line was changed or cut")
    return value


def _head(value: dict[str, Any], name: str) -> dict[str, Any]:
    if value.get("monkey_state") != FORMAT:
        found = f"format {value['monkey_state']}" if "monkey_state" in value else "no beginning of an export"
        raise UsageProblem(f"{name}:1", f"found {found}; this version reads format {FORMAT}")
    return value


def _document(value: dict[str, Any], name: str, number: int, rows: Rows) -> list[Encoded]:
    table, key, doc = value.get("table"), value.get("key"), value.get("doc")
    if table not in TABLES or not isinstance(key, str) or not isinstance(doc, dict):
        raise UsageProblem(f"{name}:{number}", f"expected a document of one of the tables {', '.join(TABLES)}")
    if rows.get(table, key) is not None:
        raise UsageProblem(f"{name}:{number}", f"{table} {key} stands there twice")
    try:
        return encode([Change.put(table, key, doc)])
    except (ValueError, TypeError) as error:
        raise UsageProblem(f"{name}:{number}", str(error)) from error


@dataclass(frozen=True)
class Imported:
    """What an import brought, and where the files that were there before are kept."""

    jobs: int
    documents: int
    kept: list[Path]


def import_record(folder: Path, source: BinaryIO, name: str, *, replace: bool) -> Imported:
    """Make the record of `folder` what the export `source` says; everything is verified before anything is changed.

    A kill at any moment leaves the old record or the new one.

    Raises:
        UsageProblem: the export is not whole, or there is a record and `replace` is false.
        StoreLockedError: a core has it open.
        StoreFullError, StoreWriteError: the disk; the old record still stands.
    """
    seq, rows = read_export(source, name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise as_store_error(error, folder, "the import was refused") from error
    journal = Journal(folder / JOURNAL_NAME)
    try:
        there = _what_is_there(folder, replace)
        kept = _keep(folder) if there else []
        # Were the journal not cut after this (a kill), its records must count as older than what is new.
        write_snapshot(folder / STATE_NAME, max(seq, _last_number(folder)), rows)
        journal.clear()
    except OSError as error:
        raise as_store_error(error, folder / STATE_NAME, "the old record still stands") from error
    finally:
        journal.close()
    sizes = rows.sizes()
    return Imported(sizes.get("jobs", 0), sum(sizes.values()), kept)


def _what_is_there(folder: Path, replace: bool) -> bool:
    """Whether there is a record to be kept. Raises UsageProblem when it must not be replaced."""
    try:
        found = load(folder, locked=False)[1]
    except StoreCorruptError as error:
        if not replace:
            raise UsageProblem("--replace", f"expected for a record that is there, though damaged ({error})") from error
        return True
    if found.documents and not replace:
        raise UsageProblem("--replace", f"expected: the record in {folder} holds {found.jobs} jobs already")
    return bool(found.documents or found.journal_records)


def _keep(folder: Path) -> list[Path]:
    """Copies of both files beside them."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    kept = []
    for name in (STATE_NAME, JOURNAL_NAME):
        source = folder / name
        if not source.exists() or not source.stat().st_size:
            continue
        copy = folder / f"{name}.before-import-{moment}"
        for again in range(1, 100):
            if not copy.exists():
                break
            copy = folder / f"{name}.before-import-{moment}-{again}"
        try:
            fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with source.open("rb") as there, open(fd, "wb") as to:
                shutil.copyfileobj(there, to)
                to.flush()
                os.fsync(to.fileno())
        except OSError:
            copy.unlink(missing_ok=True)
            raise
        kept.append(copy)
    sync_folder(folder)
    return kept


def _last_number(folder: Path) -> int:
    """The highest number of a change in both files, as far as they can be read."""
    snapshot = Snapshot(folder / STATE_NAME)
    with contextlib.suppress(StoreCorruptError):
        for _ in snapshot.rows():
            pass
    with (folder / JOURNAL_NAME).open("rb") as file:
        parsed = (parse_line(line.rstrip(b"\n")) for line in file)
        return max([snapshot.seq, *(found[0] for found in parsed if found)])
