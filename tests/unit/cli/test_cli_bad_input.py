"""Bad input: one line that names the thing and what was expected, exit code 2, nothing changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monkey.paths import Home

Run = Callable[..., tuple[int, bytes, str]]

# arguments, then words that must stand in the line
WITHOUT_CORE = [
    (["lst"], ["lst", "did you mean `monkey list`"]),
    (["list", "jbos"], ["jbos", "monkey list jobs"]),
    (["provider", "ad"], ["ad", "monkey provider add"]),
    (["frobnicate"], ["frobnicate", "expected one of run"]),
    (["list", "jobs", "--runing"], ["--runing", "did you mean --running"]),
    (["run", "--memry", "3", "x"], ["--memry", "did you mean --memory"]),
    (["list", "jobs", "--status", "runing"], ["--status", "runing", "did you mean running"]),
    (["list", "jobs", "-n", "0"], ["--limit", "0"]),
    (["list", "jobs", "-n", "many"], ["--limit", "many"]),
    (["run"], ["command", "no command"]),
    (["run", ""], ["command", "expected a command"]),
    (["run", "-n", "two words", "x"], ["--name", "two words", "1 to 64"]),
    (["run", "-n", "", "x"], ["--name", "1 to 64"]),
    (["run", "-n", "x" * 65, "x"], ["--name", "1 to 64"]),
    (["run", "-n", "ä", "x"], ["--name", "1 to 64"]),
    (["run", "--time-limit", "-5", "x"], ["--time-limit", "expected a time"]),
    (["run", "--cpus", "-1", "x"], ["--cpus", "above 0"]),
    (["run", "--cpus", "many", "x"], ["--cpus", "number"]),
    (["run", "--gpus", "-1", "x"], ["--gpus", "at least 0"]),
    (["run", "--gpus", "1.5", "x"], ["--gpus", "whole number"]),
    (["run", "--memory", "-2G", "x"], ["--memory", "expected memory"]),
    (["run", "--priority", "-5", "true"], ["--priority", "from 0 to 1000", "-5"]),
    (["run", "--priority", "1001", "x"], ["--priority", "from 0 to 1000"]),
    (["run", "--retries", "-1", "x"], ["--retries", "from 0 to 100"]),
    (["run", "--retry-on", "lots", "x"], ["--retry-on", "lots", "did you mean lost"]),
    (["run", "--retry-on", "256", "x"], ["--retry-on", "1 to 255", "256"]),
    (["run", "--retry-delay", "1h", "x"], ["--retry-delay", "from 0 to 600 s"]),
    (["run", "--lease", "4", "x"], ["--lease", "at least 5 s"]),
    (["run", "--depends-on", "afterok:", "x"], ["--depends-on", "expected ID"]),
    (["run", "-n", "me", "--depends-on", "me", "x"], ["--depends-on", "own name"]),
    (["run", "--queue", "a b", "x"], ["--queue", "a b", "1 to 64"]),
    (["run", "--max-parallel", "0", "x"], ["--max-parallel", "at least 1"]),
    (["job", "reset", "kob"], ["kob", "no such job"]),
    (["job", "rerun"], ["JOB", "--failed"]),
    (["job", "rerun", "kob", "--failed"], ["--failed", "kob"]),
    (["job", "rerun", "kob", "-p", "lab"], ["--provider", "--failed"]),
    (["job", "update", "kob"], ["--priority", "--max-parallel"]),
    (["job", "update", "kob", "--priority", "-1"], ["--priority", "from 0 to 1000"]),
    (["job", "update", "kob", "--max-parallel", "0"], ["--max-parallel", "at least 1"]),
    (["explain", "kob"], ["kob", "no such job"]),
    (["events", "kob"], ["kob", "no such job"]),
    (["events", "-n", "-1"], ["--limit", "-1"]),
    (["scheduler", "--policy", "smrt"], ["smrt", "did you mean smart"]),
    (["scheduler", "inf"], ["inf", "monkey scheduler info"]),
    (["provider", "drain", "lab"], ["HOST", "is missing"]),
    (["run", "--env", "NOVALUE", "x"], ["--env", "NOVALUE"]),
    (["run", "--env", "=v", "x"], ["--env", "=v"]),
    (["run", "-p", "", "x"], ["--provider", "empty"]),
    (["run", "-jf", "nothing.yml", "x"], ["nothing.yml", "no such file"]),
    (["run", "--json", "x"], ["--json", "--detach"]),
    (["run", "-d", "-f", "x"], ["--detach", "--foreground"]),
    (["info", "job"], ["JOB", "is missing"]),
    (["info", "job", "kob"], ["kob", "no such job"]),
    (["info", "job", "kob", "--juid", "bab"], ["--juid", "kob", "bab"]),
    (["logs"], ["JOB", "is missing"]),
    (["logs", "kob"], ["kob", "no such job"]),
    (["logs", "kob", "--attempt", "0"], ["--attempt", "0"]),
    (["output", "26-11-21-001"], ["26-11-21-001", "no such job"]),
    (["kill", "job"], ["JOB", "is missing"]),
    (["kill", "job", "kob"], ["kob", "no such job"]),
    (["job", "pause", "--juid", "kob"], ["kob", "no such job"]),
    (["info", "provider"], ["NAME", "is missing"]),
    (["provider", "add", "--noinput"], ["NAME", "is missing"]),
    (["provider", "add", "lab", "--noinput"], ["--type", "is missing"]),
    (["provider", "add", "l b", "--type", "ssh", "--noinput"], ["NAME", "l b", "1 to 64"]),
    (["provider", "add", "local", "--type", "ssh", "--host", "h"], ["local", "from the start"]),
    (["provider", "add", "lab", "--type", "local", "--noinput"], ["--type", "from the start"]),
    (["provider", "add", "lab", "--type", "shh", "--noinput"], ["--type", "did you mean ssh"]),
    (["provider", "add", "lab", "--type", "ssh", "--noinput"], ["--host", "is missing"]),
    (["provider", "add", "lab", "--type", "ssh", "--host", "h", "--key", "none", "--noinput"], ["--key", "none"]),
    (["provider", "add", "lab", "--type", "ssh", "--host", "h", "--slots", "0"], ["--slots", "0"]),
    (["provider", "remove", "local"], ["local", "cannot be removed"]),
    (["core", "status"], ["core", "not running", "monkey core start"]),
    (["core", "status", "--json"], ["core", "not running"]),
    (["completion", "tcsh"], ["tcsh", "bash"]),
]


@pytest.mark.parametrize(("arguments", "words"), WITHOUT_CORE, ids=[" ".join(a)[:60] for a, _ in WITHOUT_CORE])
def test_bad_input_is_one_line_and_changes_nothing(
    monkey: Run, home: Home, project: Path, arguments: list[str], words: list[str]
) -> None:
    before = sorted(project.rglob("*"))
    code, out, err = monkey(*arguments)
    assert (code, out) == (2, b"")
    assert err.startswith("monkey: ") and err.endswith("\n") and err.count("\n") == 1, err
    for word in words:
        assert word in err
    assert sorted(project.rglob("*")) == before
    assert not home.root.exists()


JOB_FILES = [
    ("nam: x\n", ["job.yml", "nam", "did you mean name"]),
    ("run:\n  env_typ: pip\n", ["run.env_typ", "did you mean env_type"]),
    ("name: 3\n", ["name", "text"]),
    ("name: [\n", ["job.yml:2:1", "broken YAML"]),
    ("code:\n  path: ../elsewhere\n", ["code.path", "leaves the folder"]),
    ("code:\n  path: nothing\n", ["code.path", "nothing"]),
    ("data:\n  - {name: d, path: nothing}\n", ["data[0].path", "nothing"]),
    ("data:\n  - {name: d, path: /etc}\n", ["data[0].path", "absolute"]),
    ("persist:\n  - ../out\n", ["persist[0]", "leaves the folder"]),
    ("run:\n  env_type: pip\n", ["run.env_file", "requirements.txt"]),
    ("time_limit: -3\n", ["time_limit", "expected a time"]),
    ("providers:\n  - name: two words\n", ["providers[0].name", "1 to 64"]),
    ('code:\n  ignore: ["a\\nb"]\n', ["code", "not a pattern"]),
]


@pytest.mark.parametrize(("text", "words"), JOB_FILES, ids=[text.split("\n")[0][:40] for text, _ in JOB_FILES])
def test_a_bad_job_file_is_named_with_its_key(
    monkey: Run, home: Home, project: Path, text: str, words: list[str]
) -> None:
    (project / "job.yml").write_text(text)
    code, out, err = monkey("run", "python3", "a.py")
    assert (code, out) == (2, b"")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert not home.root.exists()


def test_a_link_out_of_the_folder_is_refused(monkey: Run, home: Home, project: Path) -> None:
    (project / "out").symlink_to("/etc")
    code, _, err = monkey("run", "python3", "a.py")
    assert code == 2 and "out" in err and err.count("\n") == 1
    assert not home.root.exists()


def test_groups_without_a_command_show_their_help(monkey: Run, home: Home) -> None:
    for group in ("list", "info", "kill", "job", "create", "provider", "core"):
        code, out, err = monkey(group)
        assert (code, out) == (2, b"") and f"Usage: monkey {group}" in err
    assert not home.root.exists()


def test_monkey_alone_without_a_terminal_is_no_command(home: Home) -> None:
    command = [sys.executable, "-m", "monkey.cli"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Usage: monkey" in done.stderr and done.stderr.endswith(b"monkey: no command\n")
    assert not home.root.exists()


@pytest.mark.parametrize("arguments", [[b"x", b"a\xffb"], [b"--env", b"K=\xff", b"x"]])
def test_arguments_that_are_not_utf8_are_refused(home: Home, project: Path, arguments: list[bytes]) -> None:
    command = [os.fsencode(sys.executable), b"-m", b"monkey.cli", b"run", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 2 and done.stdout == b""
    assert b"not UTF-8" in done.stderr and b"\\xff" in done.stderr and done.stderr.count(b"\n") == 1
    assert not home.root.exists()


def test_read_only_commands_start_no_core_in_an_empty_home(monkey: Run, home: Home) -> None:
    assert monkey("list", "jobs", "--json")[:2] == (0, b"[]\n")
    assert monkey("list", "jobs")[0] == 0
    assert not home.root.exists()


def test_core_stop_without_a_core(monkey: Run, home: Home) -> None:
    assert monkey("core", "stop")[:2] == (0, b"core: not running\n")
    assert not home.root.exists()
