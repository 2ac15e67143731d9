"""What a person at a terminal sees."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import pytest


def _at_a_terminal(*arguments: str, typed: bytes = b"", **environment: str) -> tuple[int, str]:
    main, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "monkey.cli", *arguments],
        stdin=child, stdout=child, stderr=child, env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment},
    )  # fmt: skip
    os.close(child)
    os.write(main, typed)
    seen = b""
    try:
        while piece := os.read(main, 65536):
            seen += piece
    except OSError:
        pass  # EIO: nobody has the other end any more
    os.close(main)
    return process.wait(30), seen.decode()


def test_states_have_colours_unless_no_color_is_set(core: Any) -> None:
    core.add_job(state="SUCCEEDED", host="localhost", exit_code=0)
    code, seen = _at_a_terminal("list", "jobs")
    assert code == 0 and "\x1b[32mSUCCEEDED" in seen
    code, seen = _at_a_terminal("list", "jobs", NO_COLOR="1")
    assert code == 0 and "SUCCEEDED" in seen and "\x1b[32m" not in seen


def test_monkey_alone_opens_the_shell(core: Any) -> None:
    core.add_job()
    code, seen = _at_a_terminal(typed=b"lst jobs\nlist jobs --json\nexit\n")
    assert code == 0
    assert seen.count("monkey> ") >= 3
    assert "did you mean `monkey list`" in seen and '"juid": "26-11-21-001"' in seen


def test_a_large_upload_shows_a_bar(core: Any, project: Any) -> None:
    (project / "large").write_bytes(os.urandom(3_000_000))
    code, seen = _at_a_terminal("run", "-d", "x")
    assert code == 0 and "sending" in seen and "/3.0 MB" in seen
    assert core.packed == [2]


@pytest.mark.parametrize("answer", [b"y\n", b"n\n"])
def test_host_keys_are_confirmed_by_a_person(core: Any, answer: bytes) -> None:
    code, seen = _at_a_terminal("provider", "add", "new", "--type", "ssh", "--host", "me@h", typed=answer)
    assert "SHA256:abc" in seen and "Are these the keys of your hosts?" in seen
    assert (code, len(core.added)) == ((0, 1) if answer == b"y\n" else (1, 0))
