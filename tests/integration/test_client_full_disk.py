"""A host whose disk is full: a real file system of 3 MiB."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client import bundle, control
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees import scan

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root"),
]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=True)
    path = str(folder / "client")
    os.mkdir(path)
    try:
        Path(path, control.PROGRAM).write_bytes(bundle.build()[0])
        control.ensure_daemon(path)
        yield path
    finally:
        try:
            (folder / "filler").unlink(missing_ok=True)
            control.shutdown(path)
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(home: str) -> Path:
    filler = Path(home).parent / "filler"
    with filler.open("ab", buffering=0) as handle:
        for size in (65536, 4096):
            try:
                while True:
                    handle.write(b"\0" * size)
            except OSError:
                pass
    return filler


def ended(attempt: Attempt) -> dict[str, object]:
    import time

    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        found = attempt.exit()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(attempt.state())


def spec(juid: str, *command: str, **more: object) -> dict[str, object]:
    return {"juid": juid, "attempt": 1, "command": list(command), "grace_s": 0.2, **more}


def test_code_that_does_not_fit_fails_setup_and_frees_its_space(home: str, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "big").write_bytes(os.urandom(1_600_000))
    fs = MonkeyFS(os.path.join(home, "store"))
    tree, paths = scan(str(code))
    for path in paths.values():
        fs.put_file(path)
    identity = fs.put_tree(tree)
    control.ask(home, {"op": "launch", "attempts": [spec("big", "true", code=identity)]})
    told = ended(Attempt(home, "big", 1))
    assert (told["state"], told["reason"]) == ("FAILED_SETUP", "DISK_FULL")
    assert "disk is full" in str(told["message"])
    assert not os.path.exists(Attempt(home, "big", 1).path("work"))


def test_running_attempt_ends_with_its_record_on_a_full_disk(home: str) -> None:
    control.ask(
        home, {"op": "launch", "attempts": [spec("a", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 5")]}
    )
    attempt = Attempt(home, "a", 1)
    while not attempt.has("command.json"):
        pass
    filler = fill(home)
    with pytest.raises(ClientError, match="disk is full"):
        control.ask(home, {"op": "launch", "attempts": [spec("b", "true")]})
    assert not Attempt(home, "b", 1).exists()
    os.close(os.open(attempt.path("work/go"), os.O_CREAT | os.O_WRONLY))
    told = ended(attempt)
    assert (told["state"], told["exit_code"]) == ("FAILED", 5)
    filler.unlink()
    deadline_events(home, 4)


def test_cancel_works_on_a_full_disk(home: str) -> None:
    control.ask(home, {"op": "launch", "attempts": [spec("a", "sleep", "1000")]})
    attempt = Attempt(home, "a", 1)
    while not attempt.has("command.json"):
        pass
    fill(home)
    control.ask(home, {"op": "cancel", "juid": "a", "attempt": 1})
    assert ended(attempt)["state"] == "CANCELLED"


def deadline_events(home: str, count: int) -> None:
    """All events reach the journal once there is space again."""
    import time

    deadline = time.monotonic() + 10
    while control.ask(home, {"op": "ping"})["last_seq"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
