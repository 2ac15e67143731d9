"""`monkey state check|compact|export|import`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from monkey.cli.base import Group, command, home, json_option, open_api, print_json
from monkey.errors import UsageProblem

if TYPE_CHECKING:
    from monkey.apiclient import Api

_STDIO = "-"


@click.group("state", cls=Group, short_help="Check, compact, export or import the record of all jobs.")
def state_group() -> None:
    """Check, compact, export or import the record of all jobs: state.json and state.journal in MONKEY_HOME.

    With a running core the core is asked; without one the files are read. None of these starts a core.

    \b
    Examples:
      monkey state check
      monkey state export backup.jsonl
    """


@command(short_help="Verify the record; changes nothing.")
@json_option("what the record holds, or where it is damaged,")
def check(as_json: bool) -> int:
    """Verify every document and every change of the record, and change nothing.

    Exit code 1 when a file is damaged: the line on standard error names the file, the byte and what to do. A torn tail
    is a change that was being written at a crash and was never acknowledged: the next core drops it.

    \b
    Examples:
      monkey state check
      monkey state check --json
    """
    from monkey import store

    api = _running()
    try:
        found = store.check(home().root, running=api is not None).as_json()
    except store.StoreCorruptError as error:
        if not as_json:
            raise
        print_json({"sound": False, "file": str(error.path), "offset": error.offset, "message": str(error)})
        return 1
    if api is not None:
        # What it holds; the files were read a moment before, while it may have been writing.
        found = {**found, **api.state(), "torn_bytes": 0}
    if as_json:
        print_json({"sound": True, **found})
        return 0
    from monkey.cli import show

    torn = found["torn_bytes"]
    show.pairs(
        [
            ("record", f"sound, {home().root}" + (" (the core has no room to write)" if found.get("full") else "")),
            ("jobs", str(found["jobs"])),
            ("documents", str(found["documents"])),
            ("last change", str(found["seq"])),
            ("state.json", show.size(found["state_bytes"])),
            ("state.journal", f"{show.size(found['journal_bytes'])} in {found['journal_records']} changes"),
            ("torn tail", f"{torn} B, never acknowledged; the next core drops them" if torn else None),
        ]
    )
    return 0


@command(short_help="Write state.json anew and empty the journal.")
@json_option("sizes in bytes before and after")
def compact(as_json: bool) -> None:
    """Write state.json anew and empty the journal. The core does it by itself when the journal has grown.

    \b
    Examples:
      monkey state compact
    """
    api = _running()
    if api is not None:
        before, after = api.state(), api.state_compact()
    else:
        before, after = _compact_here()
    if as_json:
        names = ("state_bytes", "journal_bytes")
        sizes = {"before": before, "after": after}
        print_json({when: {name: found[name] for name in names} for when, found in sizes.items()})
        return
    from monkey.cli import show

    for name, what in (("state_bytes", "state.json"), ("journal_bytes", "state.journal")):
        click.echo(f"{what}: {show.size(before[name])} -> {show.size(after[name])}")


def _compact_here() -> tuple[dict[str, Any], dict[str, Any]]:
    from monkey.store import Store

    _must_exist()
    with Store.open(home().root) as store:
        before = store.summary()
        store.compact()
        return before, store.summary()


@command(short_help="Write the record as JSON lines.")
@click.argument("file", required=False, default=_STDIO)
@click.option("--force", is_flag=True, help="Replace FILE when it is there.")
def export(file: str, force: bool) -> None:
    """Write the record as JSON lines to FILE, or to standard output: each with a checksum, the last with their number.

    It holds jobs and what is known of hosts. Code, data, results and logs are in MONKEY_HOME/monkeyfs and
    MONKEY_HOME/jobs: copy these folders beside it.

    \b
    Examples:
      monkey state export backup.jsonl
      monkey state export | gzip > backup.jsonl.gz
    """
    target = None if file == _STDIO else Path(file)
    if target and target.exists() and not (force and target.is_file()):
        hint = "--force replaces it" if target.is_file() else "expected the name of a file"
        raise UsageProblem(file, f"is there already; {hint}")
    if target and not target.absolute().parent.is_dir():
        raise UsageProblem(file, f"there is no folder {target.parent}")
    api = _running()
    pieces = api.state_export() if api is not None else _export_here()
    if target is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    _write_file(target, pieces)


def _export_here() -> Iterator[bytes]:
    from monkey.store import export_lines, read_record
    from monkey.version import __version__

    yield from export_lines(*read_record(home().root), __version__)


def _write_file(target: Path, pieces: Iterable[bytes]) -> None:
    """All of it or nothing."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as out:
            out.writelines(pieces)
            out.flush()
            os.fsync(fd)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@command(name="import", short_help="Bring an export back.")
@click.argument("file")
@click.option("--replace", is_flag=True, help="Replace a record that is there; its files are kept beside it.")
@json_option("jobs, documents and the files that were kept")
def import_(file: str, replace: bool, as_json: bool) -> None:
    """Make the record what FILE (`-`: standard input) says: an export, verified whole before anything is changed.

    Refused while a core runs. With --replace the files that were there are kept as state.json.before-import-TIME and
    state.journal.before-import-TIME.

    \b
    Examples:
      monkey state import backup.jsonl
      monkey state import backup.jsonl --replace
    """
    from monkey import store

    with _core_kept_away(), _source(file) as source:
        name = "standard input" if file == _STDIO else file
        try:
            found = store.import_record(home().root, source, name, replace=replace)
        except store.StoreLockedError as error:
            raise UsageProblem("core", f"{error}; `monkey core stop` first") from error
    if as_json:
        print_json({"jobs": found.jobs, "documents": found.documents, "kept": [str(path) for path in found.kept]})
        return
    click.echo(f"{found.jobs} jobs, {found.documents} documents")
    for path in found.kept:
        click.echo(f"kept: {path}")


@contextlib.contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == _STDIO:
        yield sys.stdin.buffer
        return
    try:
        if Path(file).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageProblem(file, f"cannot be read ({error.strerror}); expected an export") from error
    with open(fd, "rb") as source:
        yield source


@contextlib.contextmanager
def _core_kept_away() -> Iterator[None]:
    """Holds the lock that a core takes; refuses when one has it."""
    import fcntl

    if not home().root.is_dir():
        # No core either; and a bad FILE makes no folder.
        yield
        return
    with home().lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageProblem("core", f"it runs in {home().root}; `monkey core stop` first") from error
        yield


def _running() -> Api | None:
    """The API of the core that runs, or None."""
    from monkey.apiclient import CoreNotRunning

    try:
        return open_api(start=False)
    except CoreNotRunning:
        return None


def _must_exist() -> None:
    if not home().state.exists() and not home().journal.exists():
        raise UsageProblem("MONKEY_HOME", f"nothing was ever recorded in {home().root}")


for _command in (check, compact, export, import_):
    state_group.add_command(_command)
