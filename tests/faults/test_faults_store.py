"""The record's files are cut, flipped and half written, and their disk is full: nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lethal_core import Death, Disk
from siege import Siege, stop

from monkey.errors import UsageProblem
from monkey.store import JOURNAL_NAME, STATE_NAME, Store, StoreCorruptError, StoreFullError

_KEYS = 20
_COMPACTIONS = ("temporary:{n}:half", "replace:{n}:before", "replace:{n}:after", "cut:{n}:before", "cut:{n}:after")
Tables = dict[str, list[tuple[str, Any]]]


def _job(n: int) -> dict[str, Any]:
    state = ("QUEUED", "RUNNING", "SUCCEEDED")[n % 3]
    juid = f"26-11-21-{n % _KEYS:03}"
    return {"juid": juid, "state": state, "nickname": "kob", "name": "a", "n": n, "pad": "é" * (n % 9)}


def _put(store: Store, n: int) -> None:
    """The n-th change: two keys at once."""
    with store.transaction() as record:
        record.put("jobs", _job(n)["juid"], _job(n))
        record.put("meta", "last", {"n": n})


def _content(store: Store) -> Tables:
    return {table: store.items(table) for table in ("jobs", "hosts", "meta", "idempotency")}


def _after(last: int) -> Tables:
    """What a store holds after changes 1 … ``last``."""
    newest = {_job(n)["juid"]: _job(n) for n in range(1, last + 1)}
    meta = [("last", {"n": last})] if last else []
    return {"jobs": list(newest.items()), "hosts": [], "meta": meta, "idempotency": []}


def _read(folder: Path) -> Tables:
    """What an opener finds, after a kill: closing would write the files anew."""
    store = Store.open(folder)
    content = _content(store)
    store._journal.close()
    return content


def _write_until_killed(folder: Path, point: str | None, said: int, *, lossy: bool) -> None:
    """In a forked child: change, compact every seventh time, and say each number once it is acknowledged."""
    death = Death(point)
    Disk(death, unsynced_is_lost=lossy).install()
    store = Store.open(folder)
    n = (store.get("meta", "last") or {"n": 0})["n"]
    while True:
        n += 1
        _put(store, n)
        os.write(said, b"%d\n" % n)
        if n % 7 == 0:
            store.compact()


def _killed_writer(folder: Path, point: str | None, after_s: float, *, lossy: bool) -> int:
    """The last number that a writer had acknowledged when it was killed: at its point, or from outside."""
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _write_until_killed(folder, point, says, lossy=lossy)
        finally:
            os._exit(1)
    os.close(says)
    if point is None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    with open(hears, "rb") as source:
        numbers = source.read().split(b"\n")
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"the writer ended with {status}"
    return int(numbers[-2]) if len(numbers) > 1 else 0


def test_fault_killed_during_compaction(tmp_path: Path, fault: Any, long: bool) -> None:
    kills = 200 if long else 15
    dice = random.Random(3)
    folder, acknowledged, lost = tmp_path / "record", 0, 0
    for number in range(kills):
        kind = (*_COMPACTIONS, None)[number % (len(_COMPACTIONS) + 1)]
        point = kind and kind.format(n=dice.randint(1, 3))
        said = _killed_writer(folder, point, dice.uniform(0.01, 0.1), lossy=dice.random() < 0.5)
        acknowledged = max(acknowledged, said)
        content = _read(folder)
        found = dict(content["meta"]).get("last", {"n": 0})["n"]
        # The change that was under way may be there, without an acknowledgement; nothing else may differ.
        lost += content != _after(found) or not acknowledged <= found <= acknowledged + 1
    done = f"{kills} kills, {acknowledged:,} acknowledged changes"
    fault.row(fault="kill -9 during compaction", done=done, lost=lost)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A record as a kill left it: five changes in state.json, six more in the journal."""
    return _record(tmp_path / "small", 5, 11)


def _record(folder: Path, compacted: int, changes: int) -> Path:
    store = Store.open(folder)
    for n in range(1, changes + 1):
        _put(store, n)
        if n == compacted:
            store.compact()
    store._journal.close()
    return folder


class Judge:
    """Opens damaged copies of a record."""

    def __init__(self, record: Path, copy: Path) -> None:
        self._record, self._copy = record, copy
        self._files = {name: (record / name).read_bytes() for name in (STATE_NAME, JOURNAL_NAME)}
        self.expected = _read(record)

    def size(self, name: str) -> int:
        return len(self._files[name])

    def flipped(self, name: str, at: int, bits: int) -> bytes:
        raw = bytearray(self._files[name])
        raw[at] ^= bits
        return bytes(raw)

    def cut(self, name: str, at: int) -> bytes:
        return self._files[name][:at]

    def opens(self, name: str, damaged: bytes) -> Tables | None:
        """What an opener finds in a copy of the record with one file damaged; None: it refuses, as it should."""
        self._copy.mkdir(exist_ok=True)
        for other, content in {**self._files, name: damaged}.items():
            (self._copy / other).write_bytes(content)
        try:
            return _read(self._copy)
        except StoreCorruptError as error:
            assert f"{self._copy / error.path.name} is damaged at byte {error.offset}" in str(error)
            assert error.path.name in self._files and 0 <= error.offset <= max(self.size(error.path.name), len(damaged))
            assert (self._copy / name).read_bytes() == damaged, "a record that is refused must not be touched"
            return None


@pytest.fixture
def judge(small: Path, tmp_path: Path) -> Iterator[Judge]:
    """For the small record; its copies are in memory where that is possible: thousands are opened."""
    copy = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) / f"monkey-flips-{os.getpid()}"
    yield Judge(small, copy)
    shutil.rmtree(copy, ignore_errors=True)


def _masks(at: int, size: int, dice: random.Random, *, long: bool) -> list[int]:
    """Which bits of a byte to flip: each alone in the long form and near the end, where a torn write looks alike."""
    return [1 << bit for bit in range(8)] + [0xFF] if long or size - at < 60 else [1 << dice.randrange(8)]


def test_fault_flipped_bytes(judge: Judge, tmp_path: Path, fault: Any, long: bool) -> None:
    dice = random.Random(6)
    wrong: list[tuple[str, int, int]] = []
    flips = refused = 0
    large = Judge(_record(tmp_path / "large", 1500, 2000), tmp_path / "copy")
    for judged in (judge, large):
        for name in (STATE_NAME, JOURNAL_NAME):
            size = judged.size(name)
            places = range(size) if judged is judge else dice.sample(range(size), 2000 if long else 20)
            for at in places:
                for bits in _masks(at, size, dice, long=long and judged is judge):
                    found = judged.opens(name, judged.flipped(name, at, bits))
                    flips, refused = flips + 1, refused + (found is None)
                    if found not in (None, judged.expected):
                        wrong.append((name, at, bits))
    assert not wrong, f"{len(wrong)} flips changed the record unnoticed, such as (file, byte, bits) {wrong[:8]}"
    done = f"{flips:,} flips: {refused:,} refused, {flips - refused:,} harmless"
    fault.row(fault="flipped bytes in journal and snapshot", done=done)


def test_fault_journal_and_snapshot_cut_at_every_offset(judge: Judge, fault: Any) -> None:
    lost: list[tuple[str, int]] = []
    journal = judge.cut(JOURNAL_NAME, judge.size(JOURNAL_NAME))
    for at in range(len(journal) + 1):
        # A record is whole when only its line break is missing.
        whole = journal[:at].count(b"\n") + (journal[at : at + 1] == b"\n")
        if judge.opens(JOURNAL_NAME, journal[:at]) != _after(5 + whole):
            lost.append((JOURNAL_NAME, at))
    for at in range(judge.size(STATE_NAME)):
        if judge.opens(STATE_NAME, judge.cut(STATE_NAME, at)) not in (None, judge.expected):
            lost.append((STATE_NAME, at))
    assert not lost, f"{len(lost)} cuts, such as {lost[:8]}"
    done = f"{len(journal) + 1} cuts of the journal, {judge.size(STATE_NAME)} of the snapshot"
    fault.row(fault="journal and snapshot cut at every offset", done=done, lost=len(lost))


def test_core_refuses_a_damaged_journal_and_names_file_and_offset(monkey_home: Any) -> None:
    _record(monkey_home.path, 5, 11)
    journal = monkey_home.path / JOURNAL_NAME
    raw = bytearray(journal.read_bytes())
    second = raw.index(b"\n") + 1
    raw[second + 40] ^= 1
    journal.write_bytes(raw)
    line = [sys.executable, "-m", "monkey.core", "--home", str(monkey_home.path)]
    done = subprocess.run(line, env=monkey_home.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"monkey: core: {journal} is damaged at byte {second}" in done.stderr
    assert journal.read_bytes() == raw


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
                    _put(store, n + 1)
                    n += 1
            with pytest.raises(StoreFullError, match=f"no room for {folder / STATE_NAME}"):
                store.compact()
            refused += 2
            assert _content(store) == _after(n)
            killed = shutil.copytree(folder, tmp_path / "killed", ignore=shutil.ignore_patterns("filler"))
            assert _read(killed) == _after(n)
            shutil.rmtree(killed)
        store.compact()
    store.close()
    lost = int(_read(folder) != _after(n))
    fault.row(fault="disk full: journal and snapshot", done=f"{n} changes, {refused} refusals", lost=lost)


def test_fault_disk_full_under_the_core(
    small_disk: Callable[[Path, int], Path], siege: Siege, tmp_path: Path, fault: Any, long: bool
) -> None:
    warm = siege.home.path.rename(tmp_path / "warm")
    shutil.copytree(warm, small_disk(siege.home.path, 48), symlinks=True, dirs_exist_ok=True)
    rooms = (0, 4096, 16384, 65536, 262144, 1048576) if long else (0, 131072)
    refused = 0
    core = siege.start()
    try:
        siege.answers(core)
        for n, room_bytes in enumerate(rooms):
            refused += _fill_up_and_make_room(siege, n, room_bytes, tmp_path)
    finally:
        stop(core, signal.SIGTERM)
    siege.settle()
    done = f"{len(rooms)} times full, {len(siege.acknowledged)} jobs, {refused} submissions refused"
    fault.row(fault="disk full: journal and artifacts under a core", done=done, **siege.figures())
    siege.home.close()


def _fill_up_and_make_room(siege: Siege, n: int, room_bytes: int, folder: Path) -> int:
    """The disk fills up while one job runs and three wait for its end. Returns how many submissions were refused."""
    go = folder / f"go{n}"
    runs = siege.submit(f"runs{n}", "wait", go)
    until = time.monotonic() + 30
    while siege.api.job(runs)["state"] != "RUNNING":
        assert time.monotonic() < until, siege.api.job(runs)
        time.sleep(0.05)
    # They want the whole machine.
    waiting = [siege.submit(f"waits{n}.{i}", cpus=float(os.cpu_count() or 1)) for i in range(3)]
    refused = 0
    with Glutton(siege.home.path, room_bytes) as glutton:
        for i in range(200):
            try:
                siege.submit(f"late{n}.{i}")
            except UsageProblem as error:
                refused, glutton.room_bytes = 1, 0
                assert _names_the_disk(str(error)), error
                break
        assert refused or room_bytes > 200_000, "the disk is full, and every submission was accepted"
        if refused:
            project = folder / f"project{n}"
            project.mkdir()
            told = siege.home.monkey("run", "-d", "true", cwd=project)
            assert told.returncode == 2, told
            assert len(told.stderr.splitlines()) == 1 and _names_the_disk(told.stderr), told.stderr
        go.touch()
        time.sleep(3)
        if refused:
            begun = {name.rsplit(".", 1)[0] for name in siege.witness.tally().begun}
            assert not begun & set(waiting), "a job was sent out while the disk was full"
    assert siege.until_over(60), f"it did not go on when there was room again\n{siege.tail()}"
    return refused


def _names_the_disk(message: str) -> bool:
    return "no room" in message or "disk is full" in message
