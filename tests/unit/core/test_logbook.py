"""Logs on the main node: appended once, whatever is repeated."""

from __future__ import annotations

from pathlib import Path

from monkey.logs import LogBook

JUID = "26-11-21-001"


def test_repeated_bytes_are_passed_over_and_a_gap_is_refused(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    assert book.append(JUID, 1, 0, b"one ")
    assert book.append(JUID, 1, 0, b"one two ")
    assert book.append(JUID, 1, 4, b"two ")
    assert not book.append(JUID, 1, 99, b"later")
    assert book.path(JUID, 1).read_bytes() == b"one two "
    assert book.size(JUID, 1) == 8


def test_attempts_have_logs_of_their_own(tmp_path: Path) -> None:
    book = LogBook(tmp_path)
    book.append(JUID, 1, 0, b"first")
    book.note(JUID, 2, "second\n")
    assert book.path(JUID, 1).read_bytes() == b"first"
    assert book.path(JUID, 2).read_bytes() == b"second\n"
