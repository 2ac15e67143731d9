"""`monkey run`: what is handed in, what is sent, what is printed, and the exit code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monkey import apiclient
from monkey.version import __version__

Run = Callable[..., tuple[int, bytes, str]]

ODD = [
    "python3", "two words", "", "line\nbreak", "'single'", '"double"', "$(id)", "`id`", "{{ lookup }}", "{% raw %}",
    "-d", "--json", "--", "-", "*", "\\", "\t", "🐒", "ä", "x" * 100_000,
]  # fmt: skip


def test_arguments_arrive_byte_for_byte(monkey: Run, project: Path, core: Any) -> None:
    code, out, _ = monkey("run", "-d", *ODD)
    assert (code, out) == (0, b"26-11-21-001\n")
    assert core.submissions[0]["command"] == ODD


@pytest.mark.parametrize("words", [["-odd", "x"], ["--", "x"], ["--help"]])
def test_two_dashes_end_our_options(monkey: Run, project: Path, core: Any, words: list[str]) -> None:
    assert monkey("run", "-d", "--", *words)[0] == 0
    assert core.submissions[0]["command"] == words


def test_options_fill_the_submission(monkey: Run, project: Path, core: Any) -> None:
    options = "-p lab -i localhost -n sweep --time-limit 1h30m --cpus 2 --gpus 1 --memory 2G"
    code, _, _ = monkey("run", "-d", *options.split(), "--env", "A=1=2", "--env", "B= x\n", "prog")
    assert code == 0
    sent = core.submissions[0]
    assert (sent["provider"], sent["instance"], sent["name"]) == ("lab", "localhost", "sweep")
    assert sent["time_limit_s"] == 5400
    assert sent["resources"] == {"cpus": 2, "gpus": 1, "memory_mb": 2048}
    assert sent["env"] == {"A": "1=2", "B": " x\n"}


def test_job_file_counts_and_options_override_it(monkey: Run, project: Path, core: Any) -> None:
    (project / "data").mkdir()
    (project / "data" / "d.csv").write_text("1")
    (project / "output").mkdir()
    (project / "output" / "old").write_text("not sent")
    (project / "skipped.log").write_text("not sent")
    (project / ".gitignore").write_text("*.tmp\n")
    (project / "x.tmp").write_text("not sent")
    (project / "requirements.txt").write_text("numpy\n")
    (project / "job.yml").write_text(
        "name: fromfile\nproject_name: proj\ncommand: python3 a.py --rate 0.10\nenv: {A: file, B: file}\n"
        "run: {env_type: pip, env_file: requirements.txt}\ncode: {ignore: ['*.log']}\n"
        "data: [{name: digits, path: data}]\npersist: [{name: output, path: output}]\nsetup: ['echo hi']\n"
        "providers: [{name: lab}]\n"
    )
    assert monkey("run", "-d", "--env", "A=flag", "-n", "fromflag")[0] == 0
    sent = core.submissions[0]
    assert sent["command"] == ["python3", "a.py", "--rate", "0.10"]
    assert (sent["name"], sent["project"], sent["provider"]) == ("fromflag", "proj", "lab")
    assert sent["env"] == {"A": "flag", "B": "file"}
    assert sent["run"] == {"env_type": "pip", "env_file": "requirements.txt", "env_content": "numpy\n"}
    assert sent["setup"] == ["echo hi"]
    assert sent["persist"] == [{"name": "output", "path": "output"}]
    code = [entry["path"] for entry in core.fs.get_tree(sent["code"]["tree"])["entries"]]
    assert code == [".gitignore", "a.py", "job.yml", "requirements.txt"]
    data = core.fs.get_tree(sent["data"][0]["tree"])["entries"]
    assert [entry["path"] for entry in data] == ["d.csv"]


def test_the_git_commit_is_recorded(monkey: Run, project: Path, core: Any) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "trunk"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkey("run", "-d", "x")
    assert core.submissions[0]["code"]["git"] == {"commit": commit, "branch": "trunk", "dirty": False}
    (project / "a.py").write_text("changed")
    monkey("run", "-d", "x")
    assert core.submissions[1]["code"]["git"]["dirty"] is True


def test_unchanged_code_sends_nothing_and_a_change_sends_one_file(monkey: Run, project: Path, core: Any) -> None:
    (project / "b.py").write_text("b")
    assert monkey("run", "-d", "x")[2] == "sent 2 files, 12 B\n"
    assert monkey("run", "-d", "x")[2] == "sent 0 B: nothing changed\n"
    (project / "b.py").write_text("bb")
    assert monkey("run", "-d", "x")[2] == "sent 1 file, 2 B\n"
    assert core.packed == [2, 1]


def test_streams_bytes_unaltered_and_exits_with_the_jobs_code(monkey: Run, project: Path, core: Any) -> None:
    core.output = b"half a line, \xff\x00 and\r no end"
    core.becomes[-1] = {"state": "FAILED", "reason": "NONZERO_EXIT", "exit_code": 7, "message": "See `monkey logs`."}
    code, out, err = monkey("run", "python3", "a.py")
    assert (code, out) == (7, core.output)
    assert "26-11-21-001 (kob) QUEUED on local\n" in err
    assert "RUNNING on local/localhost" in err
    assert err.splitlines()[-1] == "26-11-21-001 (kob) FAILED, exit code 7. See `monkey logs`."


ENDS = [
    ("SUCCEEDED", 0, 0), ("FAILED", 1, 1), ("FAILED", 255, 255), ("FAILED_SETUP", None, 1), ("CANCELLED", None, 1),
    ("CANCELLED", 0, 1), ("CANCELLED", 143, 143), ("TIMED_OUT", None, 1), ("TIMED_OUT", 0, 1), ("LOST", None, 1),
]  # fmt: skip


@pytest.mark.parametrize(("state", "exit_code", "ours"), ENDS)
def test_exit_code(monkey: Run, project: Path, core: Any, state: str, exit_code: int | None, ours: int) -> None:
    core.becomes[-1] = {"state": state, "exit_code": exit_code, "reason": "R", "message": "m"}
    code, _, err = monkey("run", "x")
    assert code == ours
    assert f"(kob) {state}" in err.splitlines()[-1]


def test_goes_on_where_it_stood_when_the_connection_is_cut(monkey: Run, project: Path, core: Any) -> None:
    core.output = bytes(range(256)) * 40
    core.cut_logs_at = [0, 100, 5000]
    core.becomes.insert(0, {"state": "DISPATCHING"})
    code, out, _ = monkey("run", "x")
    assert (code, out) == (0, core.output)
    assert sum(request.endswith("/log") for request in core.requests) == 4


def test_a_lost_answer_makes_one_job(monkey: Run, project: Path, core: Any) -> None:
    core.lose_submit_answers = 2
    assert monkey("run", "-d", "x")[:2] == (0, b"26-11-21-001\n")
    assert len(core.submissions) == 1 and len(core.jobs) == 1
    assert core.requests.count("POST /jobs") == 3


def test_detached_json_is_the_job(monkey: Run, project: Path, core: Any) -> None:
    code, out, _ = monkey("run", "-d", "--json", "x")
    assert code == 0
    wanted = """juid nickname name state reason exit_code provider host attempt command submitted_at started_at
    finished_at"""
    assert set(wanted.split()) <= set(json.loads(out))


def test_dry_run_shows_the_plan_and_sends_nothing(monkey: Run, project: Path, core: Any) -> None:
    code, out, _ = monkey("run", "--dry-run", "--json", "python3", "a b")
    plan = json.loads(out)
    assert code == 0
    assert plan["upload"] == plan["total"] == {"files": 1, "bytes": 11}
    assert plan["send"] == {"files": 1, "bytes": 2}
    assert (plan["host"], plan["playbook"]) == ("localhost", "monkey.runner.launch_wave")
    assert plan["command"] == ["python3", "a b"]
    assert list(core.plans[0]["blobs"].values()) == [11]
    code, out, _ = monkey("run", "--dry-run", "python3", "a b")
    assert b"python3 'a b'" in out and b"1 file, 11 B" in out
    assert core.jobs == {} and core.packed == []


@pytest.mark.parametrize(
    ("refusal", "code"),
    [((400, "provider", "no provider 'lap'; did you mean lab?"), 2), ((507, "disk", "full"), 2), ((500, "x", "y"), 1)],
)
def test_what_the_core_refuses_is_one_line(
    monkey: Run, project: Path, core: Any, refusal: tuple[int, str, str], code: int
) -> None:
    core.refuse["POST /jobs"] = refusal
    got, out, err = monkey("run", "-p", "lap", "x")
    assert (got, out) == (code, b"")
    assert err.splitlines()[-1] == f"monkey: {refusal[1]}: {refusal[2]}"


def test_a_full_disk_of_the_main_node_is_one_line(monkey: Run, project: Path, core: Any) -> None:
    core.refuse["PUT /fs/pack"] = (507, "disk", "the main node's disk is full")
    code, out, err = monkey("run", "x")
    assert (code, out, err) == (2, b"", "monkey: disk: the main node's disk is full\n")
    assert core.jobs == {}


def test_a_core_of_another_version_is_one_line(monkey: Run, project: Path, core: Any) -> None:
    core.version = "9.9.9"
    for words in (["run", "x"], ["list", "jobs"], ["info", "job", "kob"]):
        code, out, err = monkey(*words)
        assert (code, out) == (2, b"") and err.count("\n") == 1
        assert "9.9.9" in err and __version__ in err and "monkey core stop" in err
    assert monkey("core", "status")[0] == 0
    assert core.jobs == {}


def test_a_core_that_was_stopped_ends_the_stream_not_the_job(
    monkey: Run, project: Path, core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monkey.follow._AWAY_S", 0.3)
    core.becomes = [{"state": "RUNNING", "host": "localhost"}]
    core.output = b"some\n"
    core.cut_logs_at = [5]
    original = apiclient.Api.log

    def log_then_stop(self: Any, *args: Any, **options: Any) -> Any:
        yield from _until_lost(original(self, *args, **options), core)

    monkeypatch.setattr(apiclient.Api, "log", log_then_stop)
    code, out, err = monkey("run", "x")
    assert (code, out) == (1, b"some\n")
    assert "the core was stopped" in err.splitlines()[-1] and "monkey core start" in err


def _until_lost(pieces: Any, core: Any) -> Any:
    try:
        yield from pieces
    except apiclient.ConnectionLost:
        core.stop()
        raise
