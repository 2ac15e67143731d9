"""What the store on disk survives, and what it leaves behind."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tinydb import TinyDB

from monkey.store import (
    JOURNAL_NAME,
    STATE_NAME,
    Change,
    Store,
    StoreCorruptError,
    StoreFullError,
    StoreLockedError,
)
from monkey.store.journal import line_for

# A writer that is killed: says each number only after the store has acknowledged it. Every change touches two keys.
WRITER = """
import sys
from pathlib import Path
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


def put_numbers(store: Store, first: int, last: int) -> None:
    for n in range(first, last + 1):
        store.put("meta", "n", {"n": n, "pad": "é" * n})


def number(store: Store) -> int:
    doc = store.get("meta", "n")
    return doc["n"] if doc else 0


def crash(folder: Path, to: Path) -> Path:
    """The files as a kill would leave them now, in another folder."""
    shutil.copytree(folder, to)
    return to


def test_everything_is_there_after_a_kill_and_after_a_close(tmp_path: Path) -> None:
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
    database.table("jobs").update({"state": "LOST"}, doc_ids=[2])
    database.close()
    with Store.open(tmp_path) as store:
        assert store.by_state("LOST") == ["26-11-21-002"]
        assert store.get("hosts", "empty") == {}


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


def test_a_journal_cut_anywhere_holds_everything_before_the_cut(tmp_path: Path) -> None:
    ends = [0]
    with Store.open(tmp_path / "a") as store:
        for n in range(1, 5):
            put_numbers(store, n, n)
            ends.append((tmp_path / "a" / JOURNAL_NAME).stat().st_size)
        whole = (tmp_path / "a" / JOURNAL_NAME).read_bytes()
    for cut in range(len(whole) + 1):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / JOURNAL_NAME).write_bytes(whole[:cut])
        with Store.open(folder) as store:
            # A record that lacks only its line break is whole.
            assert number(store) == sum(end - 1 <= cut for end in ends[1:]), cut
            store.put("meta", "after", {"cut": cut})
            again = crash(folder, tmp_path / f"again{cut}")
        with Store.open(again) as store:
            assert store.get("meta", "after") == {"cut": cut}
            assert number(store) == sum(end - 1 <= cut for end in ends[1:]), cut


def test_a_tail_that_grew_but_was_never_filled_is_dropped(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        put_numbers(store, 1, 3)
        crash(tmp_path / "a", tmp_path / "b")
    with (tmp_path / "b" / JOURNAL_NAME).open("ab") as file:
        file.write(b"\0" * 100 + b"pad\n")
    with Store.open(tmp_path / "b") as store:
        assert number(store) == 3


def test_a_flipped_byte_is_never_taken_for_an_answer(tmp_path: Path) -> None:
    """Every byte but line breaks at the very end: refused by name of file and offset, and nothing is touched."""
    starts = []
    with Store.open(tmp_path / "a") as store:
        for n in range(1, 4):
            starts.append((tmp_path / "a" / JOURNAL_NAME).stat().st_size)
            put_numbers(store, n, n)
        whole = (tmp_path / "a" / JOURNAL_NAME).read_bytes()
    folder = tmp_path / "flipped"
    folder.mkdir()
    for at in range(len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 0x01
        (folder / JOURNAL_NAME).write_bytes(damaged)
        with pytest.raises(StoreCorruptError) as caught:
            Store.open(folder)
        assert caught.value.path == folder / JOURNAL_NAME
        assert caught.value.offset == max(start for start in starts if start <= at), at
        assert str(folder / JOURNAL_NAME) in str(caught.value)
        assert (folder / JOURNAL_NAME).read_bytes() == damaged
        assert not (folder / STATE_NAME).exists()


def test_going_back_to_before_the_damage_works_as_the_message_says(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        put_numbers(store, 1, 3)
        crash(tmp_path / "a", tmp_path / "b")
    journal = tmp_path / "b" / JOURNAL_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1].replace(b"pad", b"dap") + lines[2])
    with pytest.raises(StoreCorruptError, match=f"truncate -s {len(lines[0])}") as caught:
        Store.open(tmp_path / "b")
    os.truncate(journal, caught.value.offset)
    with Store.open(tmp_path / "b") as store:
        assert number(store) == 1


@pytest.mark.parametrize("seqs", [[2], [1, 3], [1, 1], [2, 1]])
def test_a_gap_in_the_journal_is_damage(tmp_path: Path, seqs: list[int]) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b"".join(line_for(seq, '[["meta","k",{}]]') for seq in seqs))
    with pytest.raises(StoreCorruptError, match=r"record \d where \d was expected"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b'{"jobs": {"1": {"_ke', 16),
        (b"[1]", 0),
        (b'{"jobs": {"1": 5}}', 0),
        (b'{"jobs": {"1": {}}}', 0),
        (b'{"a\xff', 3),
    ],
)
def test_a_damaged_state_file_is_refused(tmp_path: Path, content: bytes, offset: int) -> None:
    (tmp_path / STATE_NAME).write_bytes(content)
    with pytest.raises(StoreCorruptError) as caught:
        Store.open(tmp_path)
    assert (caught.value.path, caught.value.offset) == (tmp_path / STATE_NAME, offset)
    assert (tmp_path / STATE_NAME).read_bytes() == content


def test_a_lost_state_file_is_noticed(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        put_numbers(store, 1, 2)
    with Store.open(tmp_path) as store:
        put_numbers(store, 3, 3)
        crash(tmp_path, tmp_path / "b")
    (tmp_path / "b" / STATE_NAME).unlink()
    with pytest.raises(StoreCorruptError):
        Store.open(tmp_path / "b")


def test_compaction_keeps_the_files_small_and_the_state_whole(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a", compact_at_bytes=2000) as store:
        largest = 0
        for n in range(1, 300):
            store.put("meta", "n", {"n": n})
            largest = max(largest, (tmp_path / "a" / JOURNAL_NAME).stat().st_size)
        assert 1000 < largest < 2100
        with Store.open(crash(tmp_path / "a", tmp_path / "b")) as killed:
            assert number(killed) == 299


def test_a_crash_between_state_file_and_cut_of_the_journal_repeats_nothing(tmp_path: Path) -> None:
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
    for _ in range(30):
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
    assert last_said > 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("cannot mount a small tmpfs here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    with Store.open(small_disk / "home") as store:
        put_numbers(store, 1, 3)
        filler = small_disk / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        before = (small_disk / "home" / JOURNAL_NAME).stat().st_size
        for _ in range(2):
            with pytest.raises(StoreFullError, match="no room"):
                store.commit([Change.put("meta", "n", {"n": 4, "pad": "x" * 9000}), Change.put("jobs", "j", {})])
            assert number(store) == 3
            assert store.count_jobs() == 0
            assert (small_disk / "home" / JOURNAL_NAME).stat().st_size == before
        filler.unlink()
        store.put("meta", "n", {"n": 5, "pad": "x" * 9000})
        with Store.open(crash(small_disk / "home", small_disk / "copy")) as killed:
            assert number(killed) == 5
        shutil.rmtree(small_disk / "copy")


def test_no_room_for_the_state_file_loses_nothing(small_disk: Path) -> None:
    store = Store.open(small_disk / "home", compact_at_bytes=150_000)
    # Journal and state file together do not fit.
    for n in range(1, 20):
        store.put("jobs", str(n), {"n": n, "pad": "x" * 9000})
    assert store.count_jobs() == 19
    with pytest.raises(StoreFullError, match=JOURNAL_NAME):
        store.close()
    assert sorted(path.name for path in (small_disk / "home").iterdir()) == [JOURNAL_NAME]
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    with Store.open(small_disk / "home") as again:
        assert again.count_jobs() == 19
    assert len(TinyDB(small_disk / "home" / STATE_NAME).table("jobs")) == 19


LIMITED = """
import json, resource, sys
from pathlib import Path
from monkey.store import Store, StoreFullError
store = Store.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
done = refused = 0
for n in range(1, 100):
    try:
        store.put("meta", "n", {"n": n})
        done = n
    except StoreFullError:
        refused += 1
seen = store.get("meta", "n")["n"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put("meta", "after", {"v": 1})
sys.stdout.write(json.dumps([done, refused, seen]))
sys.stdout.flush()
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_limit_of_file_size_is_a_full_disk(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    writer = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert writer.returncode == -signal.SIGKILL, writer.stderr
    done, refused, seen = json.loads(writer.stdout)
    assert 0 < done < 99
    assert refused == 99 - done
    assert seen == done
    with Store.open(tmp_path) as store:
        assert number(store) == done
        assert store.get("meta", "after") == {"v": 1}


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
