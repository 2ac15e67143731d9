"""A folder is built once, by one process, and counts only when it was built to the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.environments import building
from ansible_collections.monkey.runner.plugins.module_utils.environments.errors import EnvironmentBuildError

_COLLECTIONS = Path(building.__file__).parents[6]

_BUILDER = """
import sys, time, os
from ansible_collections.monkey.runner.plugins.module_utils.environments import building
def build(folder, work, log):
    with open(sys.argv[2], "a") as calls:
        calls.write("built\\n")
    time.sleep(float(sys.argv[3]))
    os.mkdir(folder)
    os.symlink("/bin/sh", os.path.join(folder, "program"))
    return {}
sys.stdout.write(str(building.build_folder(sys.argv[1], "thing", "program", build)[0]))
"""


def _builder(home: Path, calls: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BUILDER, str(home), str(calls), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(_COLLECTIONS)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _good(folder: str, _work: str, _log: building.BuildLog) -> dict[str, object]:
    os.mkdir(folder)
    os.symlink("/bin/sh", os.path.join(folder, "program"))
    return {}


def test_of_several_processes_one_builds_and_all_have_it(tmp_path: Path) -> None:
    processes = [_builder(tmp_path / "home", tmp_path / "calls", 0.3) for _ in range(3)]
    said = sorted(process.communicate(timeout=30)[0] for process in processes)
    assert said == ["False", "False", "True"]
    assert (tmp_path / "calls").read_text() == "built\n"


def test_a_build_that_was_killed_is_done_again(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    process = _builder(tmp_path, calls, 60)
    deadline = time.monotonic() + 20
    while not calls.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    left = tmp_path / "envs" / "thing"
    left.mkdir()
    (left / "half").write_text("")
    assert building.build_folder(str(tmp_path), "thing", "program", _good)[0] is True
    assert not (left / "half").exists()
    assert building.build_folder(str(tmp_path), "thing", "program", _good)[0] is False


def test_nothing_is_built_while_a_killed_builders_tool_still_writes(tmp_path: Path) -> None:
    """The tool that a killed module left behind holds the lock: it still writes into the folder."""
    lock = str(tmp_path / "lock")
    with building.locked(lock) as descriptor:
        tool = subprocess.Popen(["sleep", "0.4"], pass_fds=(descriptor,))
    started = time.monotonic()
    with building.locked(lock):
        waited_s = time.monotonic() - started
    assert tool.wait(timeout=5) == 0
    assert waited_s > 0.25


def test_a_failed_build_leaves_no_folder_and_keeps_its_log(tmp_path: Path) -> None:
    def build(folder: str, work: str, log: building.BuildLog) -> dict[str, object]:
        os.mkdir(folder)
        log.run(["sh", "-c", "seq 1 100; exit 3"], cwd=work)
        raise EnvironmentBuildError("it failed", log.tail())

    with pytest.raises(EnvironmentBuildError) as failure:
        building.build_folder(str(tmp_path), "thing", "program", build)
    assert failure.value.log_tail.splitlines() == [str(number) for number in range(81, 101)]
    assert sorted(path.name for path in (tmp_path / "envs").iterdir()) == ["thing.lock", "thing.log"]


def test_an_environment_whose_program_is_gone_is_built_again(tmp_path: Path) -> None:
    building.build_folder(str(tmp_path), "thing", "program", _good)
    program = tmp_path / "envs" / "thing" / "program"
    program.unlink()
    program.symlink_to("/removed/by/an/upgrade")
    assert building.build_folder(str(tmp_path), "thing", "program", _good)[0] is True


def test_a_build_that_says_it_went_well_but_made_nothing_is_a_failure(tmp_path: Path) -> None:
    def build(folder: str, _work: str, _log: building.BuildLog) -> dict[str, object]:
        os.mkdir(folder)
        return {}

    with pytest.raises(EnvironmentBuildError, match="program is missing after the build"):
        building.build_folder(str(tmp_path), "thing", "program", build)
    assert not (tmp_path / "envs" / "thing").exists()


def test_output_that_is_not_text_is_shown_all_the_same(tmp_path: Path) -> None:
    log = building.BuildLog(str(tmp_path / "log"), os.open(os.devnull, os.O_RDONLY))
    assert log.run(["sh", "-c", r"printf 'bad \377 byte\n'; kill -9 $$"], cwd=str(tmp_path)) == 137
    assert log.tail(1) == "bad � byte"


def test_folders_are_private(tmp_path: Path) -> None:
    building.prepare(str(tmp_path / "home"))
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / "envs").stat().st_mode & 0o777 == 0o700
