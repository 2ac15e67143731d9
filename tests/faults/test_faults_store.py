"""The record's files are half written, cut and flipped: nothing acknowledged is lost, and nothing changes unnoticed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from known_records import Tables, after_changes, content_found, make_record, put_change
from lethal_core import Death, Disk

from monkey.store import JOURNAL_NAME, STATE_NAME, Store, StoreCorruptError

_COMPACTIONS = ("temporary:{n}:half", "replace:{n}:before", "replace:{n}:after", "cut:{n}:before", "cut:{n}:after")


def _write_until_killed(folder: Path, point: str | None, said: int, *, lossy: bool) -> None:
    """In a forked child: change, compact every seventh time, and say each number once it is acknowledged."""
    death = Death(point)
    Disk(death, unsynced_is_lost=lossy).install()
    store = Store.open(folder)
    n = (store.get("meta", "last") or {"n": 0})["n"]
    while True:
        n += 1
        put_change(store, n)
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
        content = content_found(folder)
        found = dict(content["meta"]).get("last", {"n": 0})["n"]
        # The change that was under way may be there, without an acknowledgement; nothing else may differ.
        lost += content != after_changes(found) or not acknowledged <= found <= acknowledged + 1
    done = f"{kills} kills, {acknowledged:,} acknowledged changes"
    fault.row(fault="kill -9 during compaction", done=done, lost=lost)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A record as a kill left it: five changes in state.json, six more in the journal."""
    return make_record(tmp_path / "small", 5, 11)


class Judge:
    """Opens damaged copies of a record."""

    def __init__(self, record: Path, copy: Path) -> None:
        self._record, self._copy = record, copy
        self._files = {name: (record / name).read_bytes() for name in (STATE_NAME, JOURNAL_NAME)}
        self.expected = content_found(record)

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
            return content_found(self._copy)
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
    large = Judge(make_record(tmp_path / "large", 1500, 2000), tmp_path / "copy")
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
        if judge.opens(JOURNAL_NAME, journal[:at]) != after_changes(5 + whole):
            lost.append((JOURNAL_NAME, at))
    for at in range(judge.size(STATE_NAME)):
        if judge.opens(STATE_NAME, judge.cut(STATE_NAME, at)) not in (None, judge.expected):
            lost.append((STATE_NAME, at))
    assert not lost, f"{len(lost)} cuts, such as {lost[:8]}"
    done = f"{len(journal) + 1} cuts of the journal, {judge.size(STATE_NAME)} of the snapshot"
    fault.row(fault="journal and snapshot cut at every offset", done=done, lost=len(lost))


def test_core_refuses_a_damaged_journal_and_names_file_and_offset(monkey_home: Any) -> None:
    make_record(monkey_home.path, 5, 11)
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
