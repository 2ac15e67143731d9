"""The command line against a real core on this machine: no stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monkey.paths import Home

# Playbooks take seconds, and other tests run beside this one.
_PATIENCE_S = 120.0

TICKS = """
import os, sys, time
os.makedirs("output", exist_ok=True)
flag, n = sys.argv[1], 0
open("output/began", "w").write("here")
while not os.path.exists(flag):
    print("tick", n, flush=True)
    n += 1
    time.sleep(0.1)
sys.exit(5)
"""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _pid_in(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A MONKEY_HOME; afterwards its core and its client are gone."""
    place = Home(tmp_path / "home")
    monkeypatch.setenv("MONKEY_HOME", str(place.root))
    yield place
    for name in _jobs(place, "--queued", "--running"):
        _monkey("kill", "job", name, "--wait")
    _monkey("core", "stop")
    for file in (place.client / "client.json", place.core_json):
        pid = _pid_in(file)
        if pid is not None:
            _kill(pid)


def _monkey(*arguments: str, timeout_s: float = _PATIENCE_S) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "monkey.cli", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)


def _jobs(home: Home, *filters: str) -> list[str]:
    if not home.root.exists():
        return []
    done = _monkey("list", "jobs", "--json", *filters)
    return [job["juid"] for job in json.loads(done.stdout or b"[]")]


def _until(what: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {_PATIENCE_S:.0f} s for {why}")


def test_a_stream_outlives_the_core_and_ctrl_c_leaves_the_job_running(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "ticks.py").write_text(TICKS)
    (project / "job.yml").write_text("persist: [output]\n")
    flag = tmp_path / "go"
    seen, said = tmp_path / "seen", tmp_path / "said"
    with seen.open("wb") as out, said.open("wb") as err:
        command = [sys.executable, "-m", "monkey.cli", "run", "python3", "ticks.py", str(flag)]
        streaming = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    try:
        _until(lambda: b"tick 2\n" in seen.read_bytes(), "output")
        first = _pid_in(home.core_json)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        before = seen.read_bytes().count(b"\n")
        _until(lambda: seen.read_bytes().count(b"\n") > before + 20, "output after the core was killed")
        assert _pid_in(home.core_json) not in {None, first}
        fetched = json.loads(_monkey("output", _jobs(home)[0], "--json").stdout)
        assert (Path(fetched["folder"]) / "output" / "began").read_text() == "here"
        os.kill(streaming.pid, signal.SIGINT)
        assert streaming.wait(20) == 130
    finally:
        streaming.kill()
        streaming.wait()
    juid = _jobs(home)[0]
    words = said.read_text()
    assert f"monkey logs -f {juid}" in words and f"monkey kill job {juid}" in words
    assert json.loads(_monkey("info", "job", juid, "--json").stdout)["state"] == "RUNNING"
    flag.touch()
    rest = _monkey("logs", "-f", juid)
    assert rest.returncode == 0
    lines = rest.stdout.decode().splitlines()
    assert lines == [f"tick {n}" for n in range(len(lines))]
    assert rest.stdout.startswith(seen.read_bytes())
    ended = json.loads(_monkey("info", "job", juid, "--json").stdout)
    assert (ended["state"], ended["exit_code"], ended["attempt"]) == ("FAILED", 5, 1)


def test_commands_at_once_start_one_core(home: Home) -> None:
    command = [sys.executable, "-m", "monkey.cli", "core", "start", "--json"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) for _ in range(4)]
    answers = [process.communicate(timeout=_PATIENCE_S)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0]
    assert len({json.loads(answer)["pid"] for answer in answers}) == 1
    stopped = _monkey("core", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, b"core stopped\n")
    assert not home.socket.exists() and not home.core_json.exists()
    status = _monkey("core", "status")
    assert status.returncode == 2 and status.stderr.startswith(b"monkey: core: not running")


def test_a_core_that_cannot_start_is_told_with_its_last_words(home: Home) -> None:
    home.create()
    home.state.write_text("this is no state file")
    done = _monkey("core", "start")
    assert done.returncode == 1
    assert b"the core did not start" in done.stderr and str(home.core_log).encode() in done.stderr
    assert len(done.stderr.splitlines()) > 1


def test_a_deep_home_works_all_the_same(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = Home(tmp_path.joinpath(*["deep" * 10] * 4))
    assert len(str(deep.socket)) > 108
    monkeypatch.setenv("MONKEY_HOME", str(deep.root))
    try:
        assert json.loads(_monkey("core", "start", "--json").stdout)["home"] == str(deep.root)
    finally:
        assert _monkey("core", "stop").returncode == 0
