"""Copies of files that change while they are collected."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt as ClientAttempt
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import harvest, staging


@pytest.fixture
def attempt(tmp_path: Path) -> harvest.Attempt:
    found = harvest.Attempt(str(tmp_path), "26-11-21-001", 1)
    (Path(found.folder) / "work" / "out").mkdir(parents=True)
    return found


def output(attempt: harvest.Attempt) -> Path:
    return Path(attempt.folder) / "work" / "out"


def copies(attempt: harvest.Attempt) -> dict[str, bytes]:
    folder = Path(attempt.folder) / staging.FOLDER
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def collect(attempt: harvest.Attempt, room: staging.Room | None = None) -> dict[str, str]:
    """{path: sha256} of a scan with copies."""
    stage = attempt.stage(room or staging.Room(attempt.folder))
    found = attempt.persisted("out", {}, stage.read)
    assert found["skipped"] == []
    assert stage.held == set(copies(attempt))
    return {entry["path"]: entry["sha256"] for entry in found["tree"]["entries"]}


def test_only_files_that_changed_lately_are_copied_and_the_hash_is_that_of_the_copy(attempt: harvest.Attempt) -> None:
    now = time.time()
    for name, age_s in (("young", 0.0), ("future", -3600.0), ("same", 0.0)):
        (output(attempt) / name).write_text("same" if name == "same" else name)
        os.utime(output(attempt) / name, (now - age_s, now - age_s))
    (output(attempt) / "twin").write_text("same")
    found = collect(attempt)
    held = copies(attempt)
    assert sorted(held.values()) == [b"future", b"same", b"young"]
    assert all(hashlib.sha256(content).hexdigest() == sha for sha, content in held.items())
    assert set(held) == set(found.values())
    attempt.unstage()
    assert copies(attempt) == {}
    attempt.unstage()  # nothing there is no error


def test_copies_that_were_left_go_with_the_attempt(attempt: harvest.Attempt, tmp_path: Path) -> None:
    (output(attempt) / "a").write_text("a")
    collect(attempt)
    ClientAttempt(str(tmp_path), "26-11-21-001", 1).strip()
    assert os.listdir(attempt.folder) == ["removed"]


def test_files_that_are_old_are_not_copied(attempt: harvest.Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    (output(attempt) / "old").write_text("old")
    later = time.time_ns() + 11_000_000_000
    monkeypatch.setattr(staging.time, "time_ns", lambda: later)  # a ctime cannot be set back
    assert collect(attempt) == {"old": hashlib.sha256(b"old").hexdigest()}
    assert copies(attempt) == {}


def test_what_does_not_fit_is_read_without_a_copy(attempt: harvest.Attempt) -> None:
    (output(attempt) / "large").write_bytes(b"x" * 1001)
    (output(attempt) / "small").write_bytes(b"y" * 600)
    (output(attempt) / "too much").write_bytes(b"z" * 600)
    room = staging.Room(attempt.folder)
    assert 0 < room.left_bytes <= 512_000_000
    room.left_bytes = 1000
    assert set(collect(attempt, room)) == {"large", "small", "too much"}
    assert list(copies(attempt).values()) == [b"y" * 600]
    assert room.left_bytes == 400


def test_a_link_in_place_of_the_folder_is_replaced_and_nothing_lands_outside(
    attempt: harvest.Attempt, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (Path(attempt.folder) / staging.FOLDER).symlink_to(outside)
    (output(attempt) / "a").write_text("a")
    collect(attempt)
    assert list(outside.iterdir()) == []
    assert list(copies(attempt).values()) == [b"a"]


def test_a_file_is_read_when_its_writer_has_finished(
    attempt: harvest.Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emptied, then written bit by bit, as open(…, "w") and a few writes do."""
    monkeypatch.setattr(staging, "_STILL_NS", 300_000_000)  # also on a machine that has much else to do
    path = output(attempt) / "state"
    emptied = threading.Event()

    def rewrite() -> None:
        with open(path, "w", buffering=1) as file:
            emptied.set()
            for _line in range(10):
                file.write("line\n")
                time.sleep(0.005)

    writer = threading.Thread(target=rewrite)
    writer.start()
    assert emptied.wait(5)
    collect(attempt)
    writer.join()
    assert list(copies(attempt).values()) == [b"line\n" * 10]


def test_a_file_that_is_appended_to_all_the_time_is_taken_as_far_as_it_was(attempt: harvest.Attempt) -> None:
    path = output(attempt) / "losses.csv"
    stop = threading.Event()

    def append() -> None:
        with open(path, "a", buffering=1) as file:
            while not stop.is_set():
                file.write("line\n")
                time.sleep(0.0005)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        while not (path.exists() and path.stat().st_size):
            time.sleep(0.001)
        collect(attempt)
    finally:
        stop.set()
        writer.join()
    (content,) = copies(attempt).values()
    assert content and path.read_bytes().startswith(content)
