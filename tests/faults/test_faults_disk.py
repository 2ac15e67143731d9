"""The disk is full: what cannot be kept is refused, nothing that was acknowledged is lost, and it goes on with room."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from known_records import after_changes, content_found, content_of, put_change
from siege import Siege, stop

from monkey.errors import UsageProblem
from monkey.store import JOURNAL_NAME, STATE_NAME, Store, StoreFullError

_FULL = "no room|disk is full"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[Path, int], Path]]:
    """Mounts a tmpfs of so many MB on a folder; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted: list[Path] = []

    def mount(folder: Path, size_mb: int) -> Path:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=700", "tmpfs", folder], check=True)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=False)


class Glutton(threading.Thread):
    """Eats the disk of a folder down to so much room, and what becomes free there later, too. Used in a `with`."""

    def __init__(self, folder: Path, room_bytes: int) -> None:
        super().__init__(name="glutton", daemon=True)
        self._folder, self.room_bytes = folder, room_bytes
        self._sated = threading.Event()

    def __enter__(self) -> Glutton:
        self._eat()
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._sated.set()
        self.join()
        (self._folder / "filler").unlink()

    def run(self) -> None:
        while not self._sated.wait(0.02):
            self._eat()

    def _eat(self) -> None:
        disk = os.statvfs(self._folder)
        more = disk.f_bavail * disk.f_frsize - self.room_bytes
        if more > 0:
            with contextlib.suppress(OSError), (self._folder / "filler").open("ab", buffering=0) as file:
                file.write(b"\0" * more)


def test_fault_disk_full_for_journal_and_snapshot(
    small_disk: Callable[[Path, int], Path], tmp_path: Path, fault: Any
) -> None:
    folder = small_disk(tmp_path / "disk", 1)
    store = Store.open(folder)
    n = refused = 0
    for _ in range(3):
        with Glutton(folder, 20_480):
            with pytest.raises(StoreFullError, match=f"no room for {folder / JOURNAL_NAME}"):
                while True:
                    put_change(store, n + 1)
                    n += 1
            with pytest.raises(StoreFullError, match=f"no room for {folder / STATE_NAME}"):
                store.compact()
            refused += 2
            assert content_of(store) == after_changes(n)
            killed = shutil.copytree(folder, tmp_path / "killed", ignore=shutil.ignore_patterns("filler"))
            assert content_found(killed) == after_changes(n)
            shutil.rmtree(killed)
        store.compact()
    store.close()
    lost = int(content_found(folder) != after_changes(n))
    fault.row(fault="disk full: journal and snapshot", done=f"{n} changes, {refused} refusals", lost=lost)


def test_fault_disk_full_under_the_core(
    small_disk: Callable[[Path, int], Path], siege: Siege, tmp_path: Path, fault: Any, long: bool
) -> None:
    """Journal, runs, logs, monkeyfs and client: all of MONKEY_HOME is on the disk that fills up."""
    at_rest = siege.home.path.rename(tmp_path / "rest")
    shutil.copytree(at_rest, small_disk(siege.home.path, 48), symlinks=True, dirs_exist_ok=True)
    rooms = (0, 4096, 16384, 65536, 262144, 1048576) if long else (0,)
    core = siege.start()
    try:
        siege.answers(core)
        for n, room_bytes in enumerate(rooms):
            _fill_up_and_make_room(siege, n, room_bytes, tmp_path)
    finally:
        stop(core, signal.SIGTERM)
    siege.settle()
    done = f"{len(rooms)} times full, {len(siege.acknowledged)} jobs, {2 * len(rooms)} submissions refused"
    fault.row(fault="disk full: all of MONKEY_HOME", done=done, **siege.figures())
    siege.home.close()


def _fill_up_and_make_room(siege: Siege, n: int, room_bytes: int, folder: Path) -> None:
    """The disk fills up while one job runs, and one that wants the whole machine waits for its end."""
    go, project = folder / f"go{n}", folder / f"project{n}"
    project.mkdir()
    runs = siege.submit(f"runs{n}", "wait", go)
    siege.until_state(runs, "RUNNING")
    waits = siege.submit(f"waits{n}", cpus=float(os.cpu_count() or 1))
    with Glutton(siege.home.path, room_bytes) as glutton:
        with pytest.raises(UsageProblem, match=_FULL):
            for i in range(1000):
                siege.submit(f"late{n}.{i}")
        glutton.room_bytes = 0
        told = siege.home.monkey("run", "-d", "true", cwd=project)
        assert told.returncode == 2, told
        assert len(told.stderr.splitlines()) == 1 and re.search(_FULL, told.stderr), told.stderr
        go.touch()
        time.sleep(1.5)
        assert f"{waits}.1" not in siege.witness.tally().begun, "a job was sent out while the disk was full"
    assert siege.until_over(90), f"it did not go on when there was room again\n{siege.tail()}"


def test_fault_disk_full_for_artifacts(
    small_disk: Callable[[Path, int], Path], siege: Siege, fault: Any, long: bool
) -> None:
    """Only the folder of ansible-runner's artifacts is full: jobs are taken, and wait until a playbook can run."""
    times = 5 if long else 1
    runs = small_disk(siege.home.path / "runs", 4)
    core = siege.start()
    try:
        siege.answers(core)
        for n in range(times):
            # 40 kB: the playbook starts, and finds no room half way.
            with Glutton(runs, 40_960 if n % 2 else 0):
                for i in range(3):
                    siege.submit(f"j{n}.{i}")
                time.sleep(2)
            assert siege.until_over(90), f"it did not go on when there was room again\n{siege.tail()}"
    finally:
        stop(core, signal.SIGTERM)
    siege.settle()
    done = f"{times} times full, {len(siege.acknowledged)} jobs"
    fault.row(fault="disk full: artifacts of playbooks", done=done, **siege.figures())
    siege.home.close()
