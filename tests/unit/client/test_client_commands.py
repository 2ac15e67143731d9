"""What a command gets and how its end is told."""

from __future__ import annotations

import itertools
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees import scan

SHOW = "import sys, os; [sys.stdout.buffer.write(os.fsencode(a) + b'\\0') for a in sys.argv[1:]]"


def put(host: Any, folder: Path) -> str:
    """A folder as a tree in the host's store."""
    fs = MonkeyFS(os.path.join(host.home, "store"))
    tree, paths = scan(str(folder))
    for path in paths.values():
        fs.put_file(path)
    return fs.put_tree(tree)


@pytest.mark.parametrize(
    ("command", "state", "code", "reason"),
    [
        (["true"], "SUCCEEDED", 0, "EXITED"),
        (["sh", "-c", "exit 3"], "FAILED", 3, "NONZERO_EXIT"),
        (["sh", "-c", "kill -9 $$"], "FAILED", 137, "SIGNALLED"),
        (["no-such-program"], "FAILED", 127, "COMMAND_NOT_FOUND"),
        (["./nowhere/x"], "FAILED", 127, "COMMAND_NOT_FOUND"),
        (["/etc/passwd"], "FAILED", 126, "COMMAND_NOT_FOUND"),
        (["/etc"], "FAILED", 126, "COMMAND_NOT_FOUND"),
    ],
)
def test_exit_code_is_that_of_a_shell(host: Any, command: list[str], state: str, code: int, reason: str) -> None:
    ended = host.ended(host.launch(*command))
    assert (ended["state"], ended["exit_code"], ended["reason"]) == (state, code, reason)
    assert ended["signal"] == (code - 128 if reason == "SIGNALLED" else None)
    assert ended["message"]


def test_arguments_arrive_byte_for_byte(host: Any) -> None:
    given = [
        "a b",
        "'\"\\",
        "line\nbreak\r\n",
        "$(id) `id` ${HOME}",
        "{{ 1 + 1 }}{% raw %}",
        "-n",
        "--",
        "",
        "🐒é",
        "\udcff\udc80",
    ]
    given += ["*", "~", "x" * 100_000]
    attempt = host.launch(sys.executable, "-c", SHOW, *given)
    assert host.ended(attempt)["exit_code"] == 0
    received = Path(attempt.path("log")).read_bytes().split(b"\0")[:-1]
    assert received == [text.encode("utf-8", "surrogateescape") for text in given]


def test_environment_and_descriptors_of_a_command(host: Any) -> None:
    script = (
        "import os, sys, json, stat\n"
        "own = '/proc/self/fd/'\n"
        "fds = [f for f in os.listdir(own) if os.path.exists(own + f)]\n"
        "json.dump({'env': dict(os.environ), 'fds': fds, 'cwd': os.getcwd(), 'sid': os.getsid(0) == os.getpid(),"
        " 'null': os.stat(0).st_rdev == os.stat('/dev/null').st_rdev,"
        " 'out': os.path.isdir(os.environ['MONKEY_OUTPUT'])}, sys.stdout)"
    )
    env = {"GREETING": "hello $(id)\nthere", "MONKEY_JUID": "forged"}
    resources = {"cpus": 2, "gpus": 0}
    attempt = host.launch(sys.executable, "-c", script, name="my-job", env=env, resources=resources)
    assert host.ended(attempt)["exit_code"] == 0
    seen = json.loads(host.log(attempt))
    assert seen["env"]["GREETING"] == env["GREETING"]
    assert seen["env"]["MONKEY_JUID"] == attempt.juid
    assert seen["env"]["MONKEY_ATTEMPT"] == "1"
    assert seen["env"]["MONKEY_NAME"] == "my-job"
    assert seen["env"]["MONKEY_NUM_CPUS"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in seen["env"]
    assert seen["env"]["MONKEY_OUTPUT"] == attempt.path("work/output")
    assert seen["out"] and seen["sid"] and seen["null"]
    assert seen["cwd"] == attempt.path("work")
    assert set(seen["fds"]) == {"0", "1", "2"}


def test_gpus_are_given_out_once(host: Any) -> None:
    host.slots(cpus=64, gpus=3)
    show = ["sh", "-c", "echo got $CUDA_VISIBLE_DEVICES; sleep 100"]
    first = host.launch(*show, resources={"cpus": 1, "gpus": 2})
    second = host.launch(*show, resources={"cpus": 1, "gpus": 1})
    third = host.launch(*show, resources={"cpus": 1, "gpus": 1})
    assert "got 0,1" in host.said(first, "got")
    assert "got 2" in host.said(second, "got")
    assert third.state() == "QUEUED"
    host.order("cancel", first)
    assert "got 0" in host.said(third, "got")


def test_slots_hold_back_in_order(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    blocker = host.launch("sleep", "100")
    later = [host.launch("sh", "-c", "date +%s%N") for _ in range(3)]
    host.running(blocker)
    assert [attempt.state() for attempt in later] == ["QUEUED"] * 3
    host.order("cancel", blocker)
    ended = [host.ended(attempt) for attempt in later]
    starts = [item["started_at"] for item in ended]
    assert starts == sorted(starts)
    assert all(first["ended_at"] <= second["started_at"] for first, second in itertools.pairwise(ended))


def test_attempt_that_can_never_run_is_refused_with_its_field(host: Any) -> None:
    with pytest.raises(ClientError, match="gpus 1, this host offers 0"):
        host.slots(gpus=0)
        host.launch("true", resources={"gpus": 1})


def test_work_folder_holds_code_data_and_persisted_folders(host: Any, tmp_path: Path) -> None:
    code, data, before = tmp_path / "code", tmp_path / "data", tmp_path / "before"
    for folder in (code / "sub", data, before):
        folder.mkdir(parents=True)
    (code / "run.sh").write_text("#!/bin/sh\ncat sub/data/numbers output/checkpoint; echo new > output/new; pwd\n")
    (code / "run.sh").chmod(0o755)
    (data / "numbers").write_text("1 2 3\n")
    (before / "checkpoint").write_text("epoch 4\n")
    spec = {
        "code": put(host, code),
        "data": [{"name": "d", "path": "sub/data", "tree": put(host, data)}],
        "persist": [
            {"name": "output", "path": "output", "tree": put(host, before)},
            {"name": "more", "path": "a/b", "tree": None},
        ],
    }
    first, second = host.launch("./run.sh", **spec), host.launch("./run.sh", **spec)
    for attempt in (first, second):
        assert host.ended(attempt)["exit_code"] == 0
        assert host.log(attempt) == f"1 2 3\nepoch 4\n{attempt.path('work')}\n"
        assert Path(attempt.path("work/output/new")).read_text() == "new\n"
        assert os.path.isdir(attempt.path("work/a/b"))
    shared = {os.path.realpath(attempt.path("work/sub/data")) for attempt in (first, second)}
    assert shared == {os.path.join(host.home, "data", spec["data"][0]["tree"])}
    assert not stat.S_IMODE(os.stat(shared.pop()).st_mode) & 0o222


def test_code_that_was_not_sent_fails_setup_and_says_so(host: Any) -> None:
    ended = host.ended(host.launch("true", code="0" * 64))
    assert (ended["state"], ended["reason"]) == ("FAILED_SETUP", "SETUP_FAILED")
    assert "sync" in ended["message"]


def test_setup_lines_run_before_the_command_and_stop_at_the_first_failure(host: Any) -> None:
    good = host.launch("cat", "made", setup=["X=$(echo one)", 'echo "$X two" > made'])
    assert host.ended(good)["state"] == "SUCCEEDED"
    assert host.log(good) == "one two\n"
    bad = host.launch("touch", "ran", setup=["echo before", "false", "echo after"])
    ended = host.ended(bad)
    assert (ended["state"], ended["reason"], ended["exit_code"]) == ("FAILED_SETUP", "SETUP_FAILED", None)
    assert "before" in ended["message"] and "after" not in host.log(bad)
    assert not os.path.exists(bad.path("work/ran"))


def test_pip_environment_comes_first_in_path(host: Any, tmp_path: Path) -> None:
    program = tmp_path / "env" / "bin" / "hello"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho from $VIRTUAL_ENV\n")
    program.chmod(0o755)
    attempt = host.launch("hello", environment={"kind": "pip", "path": str(tmp_path / "env")})
    assert host.ended(attempt)["exit_code"] == 0
    assert host.log(attempt) == f"from {tmp_path / 'env'}\n"


def test_output_comes_as_it_is_written(host: Any) -> None:
    attempt = host.launch(sys.executable, "-c", "import time; print('ready'); time.sleep(100)")
    assert host.said(attempt) == "ready\n"


def test_keeper_is_named_after_its_job(host: Any) -> None:
    attempt = host.launch("sleep", "100")
    host.running(attempt)
    pid = attempt.read("keeper.json")["pid"]
    assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == f"monkey-job {attempt.key}".encode()


def test_script_without_first_line_runs_as_in_a_shell(host: Any) -> None:
    attempt = host.launch("./x", setup=["echo 'echo plain' > x", "chmod +x x"])
    assert host.ended(attempt)["exit_code"] == 0
    assert host.log(attempt) == "plain\n"


def test_default_signals_and_umask_for_the_command(host: Any) -> None:
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as a shell does for what it starts in the background
    try:
        host.kill_daemon()
        attempt = host.launch("grep", "-E", "Sig(Ign|Blk)", "/proc/self/status")
    finally:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    assert host.ended(attempt)["exit_code"] == 0
    blocked, ignored = (int(word, 16) for word in host.log(attempt).split()[1::2])
    # Signals 32 and 33 are the C library's own: no program can set them.
    assert (blocked, ignored & ~(0b11 << 31)) == (0, 0)
    pipe = host.launch("bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    host.ended(pipe)
    assert host.log(pipe).split() == ["y", str(128 + signal.SIGPIPE)]
