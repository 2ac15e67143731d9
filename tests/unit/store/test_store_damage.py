"""Damaged files: every flipped byte is noticed, and only what was never acknowledged is dropped."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tinydb import TinyDB

from monkey.store import JOURNAL_NAME, STATE_NAME, Change, Store, StoreCorruptError
from monkey.store.records import line_for

Helper = Callable[..., Any]
# One bit, the sign bit, and bytes that mean something to us: NUL, line break, comma, quote, digit, closing brace.
FLIPS: list[Callable[[int], int]] = [
    lambda byte: byte ^ 0x01,
    lambda byte: byte ^ 0x80,
    *(lambda byte, to=to: to for to in b'\0\n,"7} '),  # type: ignore[misc]
]


def flipped(whole: bytes, at: int, kind: int) -> bytes | None:
    """`whole` with one byte changed, or None when the byte is that already."""
    byte = FLIPS[kind](whole[at])
    return None if byte == whole[at] else whole[:at] + bytes([byte]) + whole[at + 1 :]


def contents(folder: Path) -> dict[str, object]:
    """Everything that an opened store answers."""
    with Store.open(folder) as store:
        return {
            **{table: store.items(table) for table in ("jobs", "hosts", "meta", "idempotency")},
            "counts": store.counts(),
            "on_host": store.on_host(),
            "kob": store.latest_by_nickname("kob"),
            "seq": store.summary()["seq"],
        }


def fill(store: Store) -> None:
    for n, state in enumerate(("QUEUED", "RUNNING", "LOST")):
        nickname = ("kob", "wit")[n % 2]
        doc = {"juid": str(n), "state": state, "nickname": nickname, "on_host": n == 1, "env": {"A": "é,}{\n"}}
        store.put("jobs", str(n), doc)
    store.put("hosts", "lab/1", {})
    store.commit([Change.put("meta", "k", {"v": [1, 2.5, None]}), Change.put("idempotency", "x", {"juid": "0"})])


def test_a_journal_cut_anywhere_holds_everything_before_the_cut(
    tmp_path: Path, put_numbers: Helper, number: Helper, crash: Helper
) -> None:
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


@pytest.mark.parametrize("kind", range(len(FLIPS)))
def test_a_flipped_byte_of_the_journal_is_refused_by_name_and_offset(
    tmp_path: Path, put_numbers: Helper, kind: int
) -> None:
    """Every byte, those of the last record, of its number and of its line break too; and nothing is touched."""
    starts = []
    with Store.open(tmp_path / "a") as store:
        for n in range(1, 4):
            starts.append((tmp_path / "a" / JOURNAL_NAME).stat().st_size)
            put_numbers(store, n, n)
        whole = (tmp_path / "a" / JOURNAL_NAME).read_bytes()
    folder = tmp_path / "flipped"
    folder.mkdir()
    for at in range(len(whole)):
        damaged = flipped(whole, at, kind)
        if damaged is None:
            continue
        (folder / JOURNAL_NAME).write_bytes(damaged)
        with pytest.raises(StoreCorruptError) as caught:
            Store.open(folder)
        assert caught.value.path == folder / JOURNAL_NAME
        assert caught.value.offset == max(start for start in starts if start <= at), at
        assert str(folder / JOURNAL_NAME) in str(caught.value)
        assert (folder / JOURNAL_NAME).read_bytes() == damaged
        assert not (folder / STATE_NAME).exists()


@pytest.mark.parametrize("kind", range(len(FLIPS)))
def test_a_flipped_byte_of_the_state_file_is_refused_by_name_and_offset(tmp_path: Path, kind: int) -> None:
    with Store.open(tmp_path / "a") as store:
        fill(store)
    whole = (tmp_path / "a" / STATE_NAME).read_bytes()
    folder = tmp_path / "flipped"
    folder.mkdir()
    # Every byte by a bit; the other kinds each at every third byte.
    for at in range(kind % 3, len(whole), 3) if kind else range(len(whole)):
        damaged = flipped(whole, at, kind)
        if damaged is None:
            continue
        (folder / STATE_NAME).write_bytes(damaged)
        if whole[:2] == b"{\n" and damaged[:2] == b"{ ":
            # White space where a line break was: another form of the same file, and read as that.
            assert contents(folder) == contents(tmp_path / "a")
            continue
        with pytest.raises(StoreCorruptError) as caught:
            Store.open(folder)
        assert caught.value.path == folder / STATE_NAME
        # The line that is wrong, or where the one before it was expected to end.
        begin = whole.rfind(b"\n", 0, at) + 1
        assert whole.rfind(b"\n", 0, max(begin - 1, 0)) + 1 <= caught.value.offset <= max(at + 1, 3), at
        assert (folder / STATE_NAME).read_bytes() == damaged


def test_a_state_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        fill(store)
    whole = (tmp_path / "a" / STATE_NAME).read_bytes()
    folder = tmp_path / "cut"
    folder.mkdir()
    for cut in range(len(whole)):
        (folder / STATE_NAME).write_bytes(whole[:cut])
        with pytest.raises(StoreCorruptError):
            Store.open(folder)


def test_lines_that_are_missing_or_stand_twice_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        fill(store)
    lines = (tmp_path / "a" / STATE_NAME).read_bytes().splitlines(keepends=True)
    folder = tmp_path / "b"
    folder.mkdir()
    for at in range(len(lines)):
        for changed in (lines[:at] + lines[at + 1 :], lines[: at + 1] + lines[at:]):
            (folder / STATE_NAME).write_bytes(b"".join(changed))
            with pytest.raises(StoreCorruptError):
                Store.open(folder)


def test_what_plain_tinydb_wrote_again_is_read_with_the_same_checks(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as store:
        fill(store)
    expected = contents(tmp_path / "a")
    with TinyDB(tmp_path / "a" / STATE_NAME) as database:
        database.drop_table("_default")
        database.table("mine").insert({"x": 1})
        database.drop_table("mine")
    whole = (tmp_path / "a" / STATE_NAME).read_bytes()
    assert whole.count(b"\n") == 0
    folder = tmp_path / "b"
    folder.mkdir()
    refused = 0
    for at in range(len(whole)):
        damaged = flipped(whole, at, 0)
        assert damaged
        (folder / STATE_NAME).write_bytes(damaged)
        try:
            # The number of a document says nothing: there a flip changes nothing that is read.
            assert contents(folder) == expected, (at, damaged[at - 20 : at + 20])
        except StoreCorruptError as error:
            assert error.path == folder / STATE_NAME
            refused += 1
    assert refused > len(whole) * 0.98
    assert contents(tmp_path / "a") == expected


def test_a_document_that_plain_tinydb_changed_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        fill(store)
    with TinyDB(tmp_path / STATE_NAME) as database:
        database.table("jobs").update({"state": "SUCCEEDED"}, doc_ids=[2])
    with pytest.raises(StoreCorruptError, match="document 2 of table jobs") as caught:
        Store.open(tmp_path)
    assert (tmp_path / STATE_NAME).read_bytes()[caught.value.offset :].startswith(b'"1"')


def test_flips_in_large_files_are_never_taken_for_an_answer(tmp_path: Path, crash: Helper) -> None:
    """A seeded sample: records longer than a sector and than a buffer."""
    chance = random.Random(26)
    with Store.open(tmp_path / "a") as store:
        store.commit([Change.put("jobs", str(n), {"juid": str(n), "pad": "x" * n * 400}) for n in range(60)])
        store.compact()
        for n in range(30):
            store.put("jobs", str(n), {"juid": str(n), "state": "LOST", "pad": "y" * n * 900})
        folder = crash(tmp_path / "a", tmp_path / "b")
    for name in (STATE_NAME, JOURNAL_NAME):
        whole = (folder / name).read_bytes()
        for _ in range(60):
            damaged = flipped(whole, chance.randrange(len(whole)), chance.randrange(len(FLIPS)))
            if damaged:
                (folder / name).write_bytes(damaged)
                with pytest.raises(StoreCorruptError):
                    Store.open(folder)
        (folder / name).write_bytes(whole)
    assert contents(folder) == contents(tmp_path / "a")


def test_sectors_that_never_reached_the_disk_are_dropped(tmp_path: Path, number: Helper) -> None:
    """What a power cut can leave of a record that was not acknowledged: NUL bytes where sectors are missing."""
    with Store.open(tmp_path / "a") as store:
        store.put("meta", "n", {"n": 1, "pad": "x" * 900})
        start = (tmp_path / "a" / JOURNAL_NAME).stat().st_size
        store.put("meta", "n", {"n": 2, "pad": "y" * 3000})
        whole = (tmp_path / "a" / JOURNAL_NAME).read_bytes()
    edges = [start, *range(-(-start // 512) * 512, len(whole), 512), len(whole)]
    folder = tmp_path / "b"
    folder.mkdir()
    for first in range(len(edges) - 1):
        for last in range(first + 1, len(edges)):
            hole = edges[last] - edges[first]
            (folder / JOURNAL_NAME).write_bytes(whole[: edges[first]] + b"\0" * hole + whole[edges[last] :])
            with Store.open(folder) as store:
                assert number(store) == 1
            (folder / STATE_NAME).unlink()
    # A hole in a record that has a whole one behind it was there when that one was acknowledged.
    (folder / JOURNAL_NAME).write_bytes(whole[:512] + b"\0" * 2 + whole[514:])
    with pytest.raises(StoreCorruptError):
        Store.open(folder)


def test_going_back_to_before_the_damage_works_as_the_message_says(
    tmp_path: Path, put_numbers: Helper, number: Helper, crash: Helper
) -> None:
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
        (b"", 0),
        (b'{"jobs": {"1": {"_ke', 16),
        (b"[1]", 0),
        (b'{"jobs": {"1": 5}}', 0),
        (b'{"a\xff', 3),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, content: bytes, offset: int) -> None:
    (tmp_path / STATE_NAME).write_bytes(content)
    with pytest.raises(StoreCorruptError) as caught:
        Store.open(tmp_path)
    assert (caught.value.path, caught.value.offset) == (tmp_path / STATE_NAME, offset)
    assert (tmp_path / STATE_NAME).read_bytes() == content


def test_a_lost_state_file_is_noticed(tmp_path: Path, put_numbers: Helper, crash: Helper) -> None:
    with Store.open(tmp_path) as store:
        put_numbers(store, 1, 2)
    with Store.open(tmp_path) as store:
        put_numbers(store, 3, 3)
        crash(tmp_path, tmp_path / "b")
    (tmp_path / "b" / STATE_NAME).unlink()
    with pytest.raises(StoreCorruptError):
        Store.open(tmp_path / "b")
