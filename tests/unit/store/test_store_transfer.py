"""A record checked without being changed, carried out, and brought back."""

import json
import os
import shutil
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from monkey.errors import UsageProblem
from monkey.store import (
    JOURNAL_NAME,
    STATE_NAME,
    Store,
    StoreCorruptError,
    StoreLockedError,
    check,
    export_lines,
    import_record,
    read_record,
)


def fill(folder: Path, jobs: int = 3) -> None:
    """A record of which a part is in each of the two files."""
    with Store.open(folder) as store:
        for n in range(jobs):
            store.put("jobs", f"j{n}", {"juid": f"j{n}", "state": "QUEUED", "nickname": "kob", "env": {"A": "é\n"}})
        store.compact()
        store.put("jobs", "j0", {"juid": "j0", "state": "RUNNING", "on_host": True})
        store.put("meta", "k", {"v": 1})
        kept = {name: (folder / name).read_bytes() for name in (STATE_NAME, JOURNAL_NAME)}
    for name, content in kept.items():
        (folder / name).write_bytes(content)


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def contents(folder: Path) -> dict[str, Any]:
    with Store.open(folder) as store:
        return {**{table: store.items(table) for table in ("jobs", "meta")}, "seq": store.summary()["seq"]}


def exported(folder: Path) -> bytes:
    return b"".join(export_lines(*read_record(folder), "1.2.3"))


def test_check_says_what_there_is_and_changes_nothing(tmp_path: Path) -> None:
    assert check(tmp_path / "nothing").documents == 0
    assert not (tmp_path / "nothing").exists()
    fill(tmp_path / "a")
    with (tmp_path / "a" / JOURNAL_NAME).open("ab") as file:
        file.write(b"0123abcd 99 6 [torn")
    before = files(tmp_path / "a")
    found = check(tmp_path / "a")
    assert (found.jobs, found.documents, found.seq, found.journal_records, found.torn_bytes) == (3, 4, 5, 2, 19)
    assert found.state_bytes == len(before[STATE_NAME][0])
    assert found.journal_bytes == len(before[JOURNAL_NAME][0])
    assert files(tmp_path / "a") == before


def test_check_names_the_damage(tmp_path: Path) -> None:
    fill(tmp_path)
    whole = (tmp_path / JOURNAL_NAME).read_bytes()
    (tmp_path / JOURNAL_NAME).write_bytes(whole.replace(b'"v":1', b'"v":2'))
    with pytest.raises(StoreCorruptError) as caught:
        check(tmp_path)
    assert caught.value.path == tmp_path / JOURNAL_NAME
    assert caught.value.offset == whole.index(b"\n") + 1


def test_check_looks_at_a_store_that_is_open_only_when_told_so(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put("meta", "k", {"v": 1})
        with pytest.raises(StoreLockedError):
            check(tmp_path)
        assert check(tmp_path, running=True).seq == 1


def test_an_export_brings_back_the_same_record(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = exported(tmp_path / "a")
    assert exported(tmp_path / "a") == stream
    head = json.loads(stream.splitlines()[0])
    assert {name: head[name] for name in ("monkey_state", "core_version", "seq", "documents", "jobs")} == {
        "monkey_state": 1, "core_version": "1.2.3", "seq": 5, "documents": 4, "jobs": 3
    }  # fmt: skip
    found = import_record(tmp_path / "b", BytesIO(stream), "x", replace=False)
    assert (found.jobs, found.documents, found.kept) == (3, 4, [])
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    with Store.open(tmp_path / "a") as store:
        assert b"".join(export_lines(*store.entries(), "1.2.3")) == stream


def test_an_export_that_was_cut_or_changed_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = exported(tmp_path / "a")
    fill(tmp_path / "b", jobs=1)
    before = files(tmp_path / "b")
    lines = stream.splitlines(keepends=True)
    bad = [stream[:at] for at in range(len(stream))]
    bad += [stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :] for at in range(len(stream))]
    bad += [b"".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines))]
    bad += [b"".join(lines[: at + 1] + lines[at:]) for at in range(len(lines))]
    for content in bad:
        with pytest.raises(UsageProblem, match=r"x\.jsonl"):
            import_record(tmp_path / "b", BytesIO(content), "x.jsonl", replace=True)
    assert files(tmp_path / "b") == before


def test_a_record_that_is_there_is_replaced_only_when_told_so_and_kept(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = exported(tmp_path / "a")
    fill(tmp_path / "b", jobs=1)
    before = files(tmp_path / "b")
    with pytest.raises(UsageProblem, match=r"--replace.*holds 1 jobs"):
        import_record(tmp_path / "b", BytesIO(stream), "x", replace=False)
    assert files(tmp_path / "b") == before
    found = import_record(tmp_path / "b", BytesIO(stream), "x", replace=True)
    again = import_record(tmp_path / "b", BytesIO(stream), "x", replace=True)
    assert not set(found.kept) & set(again.kept), "what was kept first stays"
    old = tmp_path / "old"
    old.mkdir()
    for path in found.kept:
        assert ".before-import-" in path.name
        assert path.stat().st_mode & 0o777 == 0o600
        shutil.copy(path, old / path.name.partition(".before")[0])
    assert {name: content for name, (content, _) in files(old).items()} == {n: c for n, (c, _) in before.items()}
    with Store.open(old) as store:
        assert store.by_state("RUNNING") == ["j0"]
        assert store.count_jobs() == 1
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_a_damaged_record_can_be_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = exported(tmp_path / "a")
    fill(tmp_path / "b", jobs=2)
    for name in (STATE_NAME, JOURNAL_NAME):
        (tmp_path / "b" / name).write_bytes((tmp_path / "b" / name).read_bytes().replace(b"juid", b"duij"))
    with pytest.raises(UsageProblem, match="though damaged"):
        import_record(tmp_path / "b", BytesIO(stream), "x", replace=False)
    assert len(import_record(tmp_path / "b", BytesIO(stream), "x", replace=True).kept) == 2
    assert contents(tmp_path / "b")["jobs"] == contents(tmp_path / "a")["jobs"]


def test_an_import_waits_for_nobody(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = exported(tmp_path / "a")
    with Store.open(tmp_path / "b") as store:
        with pytest.raises(StoreLockedError):
            import_record(tmp_path / "b", BytesIO(stream), "x", replace=True)
        assert store.count_jobs() == 0


# Dies at the moment when the new state.json has its name and the old journal is not cut yet.
HALF_WAY = """
import os, signal, sys
from pathlib import Path
from monkey.store import import_record
from monkey.store.journal import Journal
Journal.clear = lambda self: os.kill(os.getpid(), signal.SIGKILL)
import_record(Path(sys.argv[1]), open(sys.argv[2], "rb"), "x", replace=True)
"""


def test_a_kill_half_way_leaves_the_new_record_without_the_old_changes(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    stream = tmp_path / "x.jsonl"
    stream.write_bytes(exported(tmp_path / "a"))
    # More changes than the export has seen: they must not be laid over it.
    fill(tmp_path / "b", jobs=20)
    killed = subprocess.run([sys.executable, "-c", HALF_WAY, tmp_path / "b", stream], check=False, cwd=os.getcwd())
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "b" / JOURNAL_NAME).stat().st_size
    assert contents(tmp_path / "b")["jobs"] == contents(tmp_path / "a")["jobs"]
