"""A disk that is full: refused, said, and taken up again when there is room."""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tinydb import TinyDB

from monkey.store import JOURNAL_NAME, STATE_NAME, Change, Store, StoreFullError

Helper = Callable[..., Any]


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(
    small_disk: Path, put_numbers: Helper, number: Helper, crash: Helper
) -> None:
    with Store.open(small_disk / "home") as store:
        put_numbers(store, 1, 3)
        filler = small_disk / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        before = (small_disk / "home" / JOURNAL_NAME).stat().st_size
        summary = store.summary()
        for _ in range(2):
            with pytest.raises(StoreFullError, match="no room"):
                store.commit([Change.put("meta", "n", {"n": 4, "pad": "x" * 9000}), Change.put("jobs", "j", {})])
            assert number(store) == 3
            assert store.count_jobs() == 0
            assert (small_disk / "home" / JOURNAL_NAME).stat().st_size == before
            assert store.is_full
            assert store.summary()["full"]
            assert not store.probe_room()
            assert (small_disk / "home" / JOURNAL_NAME).stat().st_size == before
        # Room for a small change and not for the one that was refused is no room.
        subprocess.run(["truncate", "-s", "-8192", str(filler)], check=True)
        assert not store.probe_room()
        filler.unlink()
        assert store.probe_room()
        assert not store.is_full
        assert store.summary() == {**summary, "journal_bytes": before}
        store.put("meta", "n", {"n": 5, "pad": "x" * 9000})
        assert not store.is_full
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


def test_a_limit_of_file_size_is_a_full_disk(tmp_path: Path, number: Helper) -> None:
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


def test_a_change_that_goes_through_says_that_there_is_room(small_disk: Path) -> None:
    with Store.open(small_disk / "home") as store:
        with pytest.raises(StoreFullError):
            store.put("meta", "k", {"pad": "x" * 300_000})
        assert store.is_full
        assert not store.probe_room(), "what was refused would not fit"
        store.put("meta", "k", {"pad": "small"})
        assert not store.is_full
        assert store.get("meta", "k") == {"pad": "small"}
