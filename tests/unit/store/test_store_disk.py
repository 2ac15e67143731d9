"""What the store on disk survives, and what it leaves behind."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tinydb import TinyDB, where

from monkey.store import (
    JOURNAL_NAME,
    STATE_NAME,
    Change,
    SnapshotStorage,
    Store,
    StoreLockedError,
)

Helper = Callable[..., Any]

# A writer that is killed: says each number only after the store has acknowledged it. Every change touches two keys.
WRITER = """
import sys
from pathlib import Path
from typing import Any
from monkey.store import Change, Store
store = Store.open(Path(sys.argv[1]), compact_at_bytes=4000)
n = (store.get("meta", "last") or {"n": 0})["n"]
sys.stdout.write(f"open {n}\\n")
while True:
    n += 1
    job = {"juid": str(n % 50), "state": ("QUEUED", "RUNNING")[n % 2], "n": n, "pad": "x" * (n % 300)}
    store.commit([Change.put("jobs", str(n % 50), job), Change.put("meta", "last", {"n": n})])
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def test_everything_is_there_after_a_kill_and_after_a_close(
    tmp_path: Path, put_numbers: Helper, number: Helper, crash: Helper
) -> None:
    with Store.open(tmp_path / "a") as store:
        store.put("jobs", "j", {"juid": "j", "state": "RUNNING", "nickname": "kob"})
        put_numbers(store, 1, 5)
        with Store.open(crash(tmp_path / "a", tmp_path / "b")) as killed:
            assert number(killed) == 5
            assert killed.by_state("RUNNING") == ["j"]
    assert (tmp_path / "a" / JOURNAL_NAME).stat().st_size == 0
    with Store.open(tmp_path / "a") as again:
        assert number(again) == 5
        assert again.latest_by_nickname("kob") == "j"
        put_numbers(again, 6, 7)
    with Store.open(tmp_path / "a") as again:
        assert number(again) == 7


def test_order_and_indexes_outlive_a_restart(tmp_path: Path) -> None:
    juids = ["26-11-20-999", "26-11-20-1000", "26-11-21-001"]
    with Store.open(tmp_path) as store:
        for juid in juids:
            store.put("jobs", juid, {"juid": juid, "state": "QUEUED", "nickname": "kob"})
        store.put("jobs", juids[0], {"juid": juids[0], "state": "RUNNING", "nickname": "kob"})
    with Store.open(tmp_path) as store:
        assert [doc["juid"] for doc in store.iter_jobs()] == juids
        assert store.latest_by_nickname("kob") == juids[-1]
        assert store.counts() == {"QUEUED": 2, "RUNNING": 1}


def test_plain_tinydb_reads_what_a_close_left(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put("jobs", "26-11-21-001", {"juid": "26-11-21-001", "state": "SUCCEEDED", "command": ["echo", "é\n🐒"]})
        store.put("jobs", "26-11-21-002", {"juid": "26-11-21-002", "state": "FAILED", "command": []})
        store.put("hosts", "empty", {})
    database = TinyDB(tmp_path / STATE_NAME)
    jobs = database.table("jobs").all()
    assert [(doc["juid"], doc["state"]) for doc in jobs] == [
        ("26-11-21-001", "SUCCEEDED"),
        ("26-11-21-002", "FAILED"),
    ]
    assert jobs[0]["command"] == ["echo", "é\n🐒"]
    assert set(jobs[0]) == {"_crc", "_key", "_facts", "juid", "state", "command"}
    database.close()


def test_a_stopped_record_can_be_corrected_by_hand_with_its_own_storage(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for juid in ("a", "b", "c"):
            store.put("jobs", juid, {"juid": juid, "state": "FAILED", "nickname": "kob"})
        store.put("hosts", "h", {"v": 1})
    with TinyDB(tmp_path / STATE_NAME, storage=SnapshotStorage) as database:
        database.table("jobs").update({"state": "LOST"}, where("juid") == "b")
        database.table("jobs").remove(where("juid") == "c")
        with pytest.raises(ValueError, match="notes"):
            database.table("notes").insert({"text": "mine"})
        with pytest.raises(TypeError):
            database.table("hosts").insert({"without": "key"})
    with Store.open(tmp_path) as store:
        assert store.by_state("FAILED", "LOST") == ["a", "b"]
        assert store.get("hosts", "h") == {"v": 1}
        store.put("meta", "k", {"seq": "goes on"})


def test_a_second_opener_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put("meta", "k", {"v": 1})
        with pytest.raises(StoreLockedError, match="in use"):
            Store.open(tmp_path)
        probe = "import sys; from pathlib import Path; from monkey.store import Store; Store.open(Path(sys.argv[1]))"
        other = subprocess.run(
            [sys.executable, "-c", probe, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert other.returncode != 0
        assert "StoreLockedError" in other.stderr
        assert store.get("meta", "k") == {"v": 1}
    Store.open(tmp_path).close()


def test_files_are_private(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home") as store:
        store.put("meta", "k", {})
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / STATE_NAME).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home" / JOURNAL_NAME).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == [JOURNAL_NAME, STATE_NAME]


def test_compaction_keeps_the_files_small_and_the_state_whole(tmp_path: Path, number: Helper, crash: Helper) -> None:
    with Store.open(tmp_path / "a", compact_at_bytes=2000) as store:
        largest = 0
        for n in range(1, 300):
            store.put("meta", "n", {"n": n})
            largest = max(largest, (tmp_path / "a" / JOURNAL_NAME).stat().st_size)
        assert 1000 < largest < 2100
        with Store.open(crash(tmp_path / "a", tmp_path / "b")) as killed:
            assert number(killed) == 299


def test_a_crash_between_state_file_and_cut_of_the_journal_repeats_nothing(
    tmp_path: Path, put_numbers: Helper, number: Helper, crash: Helper
) -> None:
    with Store.open(tmp_path / "a") as store:
        put_numbers(store, 1, 3)
        store.delete("meta", "n")
        store.put("meta", "other", {"v": 1})
        journal = (tmp_path / "a" / JOURNAL_NAME).read_bytes()
    (tmp_path / "a" / JOURNAL_NAME).write_bytes(journal)
    (tmp_path / "a" / (STATE_NAME + ".tmp")).write_bytes(b'{"half')
    with Store.open(tmp_path / "a") as store:
        assert store.items("meta") == [("other", {"v": 1})]
        put_numbers(store, 7, 8)
        crash(tmp_path / "a", tmp_path / "b")
    with Store.open(tmp_path / "b") as store:
        assert number(store) == 8


def test_kill_of_the_writer_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(26)
    last_said = 0
    for _ in range(15):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            opened = writer.stdout.readline().split()
            assert opened[0] == "open", opened
            assert int(opened[1]) >= last_said
            time.sleep(chance.uniform(0, 0.03))
            writer.send_signal(signal.SIGKILL)
            said = [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        last_said = int(said[-1]) if said else int(opened[1])
    with Store.open(tmp_path) as store:
        last = store.get("meta", "last")
        assert last is not None
        # The one in flight may be there or not, but whole: job and number belong to one record.
        assert last["n"] - last_said in {0, 1}
        assert max(doc["n"] for doc in store.iter_jobs()) == last["n"]
        for back in range(min(50, last["n"])):
            job = store.get("jobs", str((last["n"] - back) % 50))
            assert job is not None
            assert job["n"] == last["n"] - back
    assert last_said > 30


def test_the_cost_of_a_change_does_not_grow_with_the_number_of_jobs(tmp_path: Path) -> None:
    """Work is counted, not timed: what is written for one change is the same with 10 and with 3,000 jobs."""
    with Store.open(tmp_path) as store:
        grown = []
        for upto in (10, 3000):
            have = store.count_jobs()
            store.commit([Change.put("jobs", f"{n:04d}", {"state": "QUEUED", "n": 0}) for n in range(have, upto)])
            before = (tmp_path / JOURNAL_NAME).stat().st_size
            store.put("jobs", "0005", {"state": "RUNNING", "n": 1})
            grown.append((tmp_path / JOURNAL_NAME).stat().st_size - before)
        assert grown[0] == grown[1]
        assert not (tmp_path / STATE_NAME).exists()
