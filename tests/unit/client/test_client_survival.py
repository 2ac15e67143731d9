"""Kills at any point: an attempt never runs twice, its end is recorded once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt, accept
from ansible_collections.monkey.runner.plugins.module_utils.client.files import boot_id, boot_seconds, write_json
from ansible_collections.monkey.runner.plugins.module_utils.client.spec import check_spec

from .conftest import until

# Ends when the file `go` appears, with exit code 7; a line in `runs` for each time that it was started.
WAITER = [
    "sh",
    "-c",
    'echo run >> "$RUNS"; echo ready; while [ ! -e go ]; do sleep 0.02; done; echo done; exit 7',
]


def go(attempt: Attempt) -> None:
    Path(attempt.path("work/go")).touch()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def keeper_of(attempt: Attempt) -> int:
    return int(attempt.read("keeper.json")["pid"])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def launch(host: Any, runs: Path, **more: Any) -> Attempt:
    attempt = host.launch(*WAITER, env={"RUNS": str(runs)}, **more)
    host.said(attempt)
    return attempt


def check_ended_once(host: Any, attempt: Attempt, runs: Path, reason: str, code: int | None) -> None:
    ended = host.ended(attempt)
    assert (ended["reason"], ended["exit_code"]) == (reason, code)
    assert runs.read_text() == "run\n"
    events = [event["type"] for event in host.journal() if event["juid"] == attempt.juid]
    assert events == ["accepted", "setup", "started", "ended"]


def test_daemon_killed_while_it_runs(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    host.kill_daemon()
    go(attempt)
    assert host.ended(attempt)["exit_code"] == 7  # by the keeper alone
    check_ended_once(host, attempt, runs, "NONZERO_EXIT", 7)


def test_daemon_killed_and_back_before_the_end(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    for _ in range(3):
        host.kill_daemon()
        host.ask(op="ping")
    assert attempt.state() == "RUNNING"
    go(attempt)
    check_ended_once(host, attempt, runs, "NONZERO_EXIT", 7)


def test_keeper_killed_while_the_daemon_lives_keeps_the_exit_code(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    kill(keeper_of(attempt))
    time.sleep(0.1)
    go(attempt)
    check_ended_once(host, attempt, runs, "NONZERO_EXIT", 7)


def test_keepers_killed_again_and_again(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    for _ in range(3):
        children = Path(f"/proc/{host.daemon_pid()}/task/{host.daemon_pid()}/children").read_text().split()
        for pid in children:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"monkey-job"):
                kill(int(pid))
        time.sleep(0.1)
    go(attempt)
    check_ended_once(host, attempt, runs, "NONZERO_EXIT", 7)


def test_all_client_processes_killed_the_command_runs_on(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    kill(keeper_of(attempt))
    kill(daemon)
    host.ask(op="ping")
    assert attempt.state() == "RUNNING"
    go(attempt)
    check_ended_once(host, attempt, runs, "EXIT_UNKNOWN", None)
    assert host.log(attempt) == "ready\ndone\n"


def test_all_client_processes_killed_and_cancelled_later(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    kill(keeper_of(attempt))
    kill(daemon)
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] == "CANCELLED"
    assert host.processes(attempt) == []


def test_limits_hold_while_the_daemon_is_stopped(host: Any) -> None:
    attempt = host.launch("sleep", "100", time_limit_s=0.4)
    host.running(attempt)
    daemon = host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        ended = host.ended(attempt, timeout_s=5)
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert (ended["state"], ended["reason"]) == ("TIMED_OUT", "TIME_LIMIT")


def test_a_keeper_began_and_is_gone_is_never_started_again(host: Any, runs: Path) -> None:
    spec = check_spec(host.spec("sh", "-c", f"echo run >> {runs}"))
    host.kill_daemon()
    attempt = accept(host.home, spec, 100)
    note = {"token": "0" * 32, "boot": boot_id(), "ts": 0, "gpus": []}
    write_json(attempt.path("start.json"), note, durable=True)  # killed between this and the fork
    write_json(attempt.path("keeper.json"), {"pid": 1, "start": 1, "boot": boot_id()})
    host.ask(op="ping")
    ended = host.ended(attempt)
    assert (ended["state"], ended["reason"]) == ("LOST", "EXIT_UNKNOWN")
    assert not runs.exists()


def test_daemon_killed_between_the_start_marker_and_the_fork(host: Any, runs: Path) -> None:
    spec = check_spec(host.spec("sh", "-c", f"echo run >> {runs}"))
    host.kill_daemon()
    attempt = accept(host.home, spec, 100)
    note = {"token": "0" * 32, "boot": boot_id(), "ts": 0, "gpus": []}
    write_json(attempt.path("start.json"), note, durable=True)
    host.ask(op="ping")  # no keeper ever began, so this cannot be a second time
    assert host.ended(attempt)["state"] == "SUCCEEDED"
    assert runs.read_text() == "run\n"


def test_accepted_and_killed_before_the_start_is_started(host: Any, runs: Path) -> None:
    spec = check_spec(host.spec("sh", "-c", f"echo run >> {runs}"))
    host.kill_daemon()
    attempt = accept(host.home, spec, 100)
    host.ask(op="ping")
    assert host.ended(attempt)["state"] == "SUCCEEDED"
    assert [event["type"] for event in host.journal()] == ["accepted", "setup", "started", "ended"]


def test_machine_started_again_while_it_ran(host: Any, runs: Path) -> None:
    spec = check_spec(host.spec("true"))
    host.kill_daemon()
    attempt = accept(host.home, spec, 100)
    write_json(attempt.path("start.json"), {"token": "0" * 32, "boot": "another boot", "ts": 0, "gpus": []})
    # The number of its command belongs to somebody else now: this must not end it.
    innocent = {"pid": os.getpid(), "start": 1, "started_at": 0.0, "boot_s": boot_seconds()}
    write_json(attempt.path("command.json"), innocent)
    host.ask(op="ping")
    assert host.ended(attempt)["reason"] == "EXIT_UNKNOWN"


def test_number_of_a_killed_command_used_again_by_another(host: Any) -> None:
    other = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        spec = check_spec(host.spec("true"))
        host.kill_daemon()
        attempt = accept(host.home, spec, 100)
        write_json(attempt.path("start.json"), {"token": "0" * 32, "boot": boot_id(), "ts": 0, "gpus": []})
        write_json(attempt.path("command.json"), {"pid": other.pid, "start": 1, "started_at": 0.0, "boot_s": 0.0})
        host.order("cancel", attempt)
        host.ended(attempt)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_launched_twice_runs_once(host: Any, runs: Path) -> None:
    spec = host.spec("sh", "-c", f"echo run >> {runs}")
    assert host.ask(op="launch", attempts=[spec, spec]) == {
        "accepted": [f"{spec['juid']}.1"],
        "known": [f"{spec['juid']}.1"],
        "cancelled": [],
    }
    host.ended(Attempt(host.home, spec["juid"], 1))
    host.kill_daemon()
    assert host.ask(op="launch", attempts=[spec])["known"] == [f"{spec['juid']}.1"]
    host.order("remove", Attempt(host.home, spec["juid"], 1))
    assert host.ask(op="launch", attempts=[spec])["known"] == [f"{spec['juid']}.1"]
    assert runs.read_text() == "run\n"


def test_second_daemon_of_a_home_leaves_it_to_the_first(host: Any) -> None:
    pid = host.daemon_pid()
    subprocess.run([sys.executable, host.program, "daemon", "--home", host.home], check=True, timeout=20)
    assert host.daemon_pid() == pid


def test_kills_at_random_points_lose_and_repeat_nothing(host: Any, tmp_path: Path) -> None:
    attempts = []
    for number in range(12):
        line = tmp_path / f"out{number}"
        spec = host.spec("sh", "-c", f"echo run >> {line}; exit {number}")
        while True:  # as a core would: again until there is an answer
            try:
                host.ask(op="launch", attempts=[spec])
                break
            except (OSError, ValueError):
                continue
        attempts.append((Attempt(host.home, spec["juid"], 1), line, number))
        time.sleep(0.003 * number)
        host.kill_daemon()
        host.ask(op="ping")
    for attempt, line, number in attempts:
        ended = host.ended(attempt)
        count = line.read_text().count("run") if line.exists() else 0
        assert count <= 1
        if ended["reason"] != "EXIT_UNKNOWN":
            assert ended["exit_code"] == number and count == 1
    seen = [(event["juid"], event["type"]) for event in host.journal()]
    assert len(seen) == len(set(seen))
    assert len([kind for _juid, kind in seen if kind == "ended"]) == 12


def test_daemon_holds_nothing_of_who_started_it(host: Any) -> None:
    pid = host.daemon_pid()
    held = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    assert not [path for path in held if path.startswith("pipe:") and held.count(path) == 1]
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_idle_daemon_and_keepers_use_no_cpu(host: Any) -> None:
    attempt = host.launch("sleep", "100")
    host.running(attempt)
    time.sleep(0.3)
    pids = [host.daemon_pid(), keeper_of(attempt)]

    def used() -> list[int]:
        return [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids]

    before = used()
    time.sleep(1.0)
    assert sum(used()) - sum(before) <= 2  # of 100 ticks


def test_exit_record_is_complete(host: Any) -> None:
    attempt = host.launch("sh", "-c", "echo 12345")
    host.ended(attempt)
    ended = json.loads(Path(attempt.path("exit.json")).read_text())
    assert ended["log_size"] == 6
    assert ended["started_at"] <= ended["ended_at"]
    assert ended["max_rss_mb"] > 0


def test_keeper_and_then_the_daemon_killed_orders_still_arrive(host: Any, runs: Path) -> None:
    attempt = launch(host, runs)
    first = keeper_of(attempt)
    kill(first)
    until(lambda: keeper_of(attempt) != first)
    host.kill_daemon()
    host.order("pause", attempt)
    until(lambda: attempt.state() == "PAUSED", timeout_s=5)
    host.order("cancel", attempt)
    assert host.ended(attempt, timeout_s=5)["state"] == "CANCELLED"
    assert host.processes(attempt) == []


def test_daemon_starts_again_over_many_finished_attempts(host: Any) -> None:
    specs = [host.spec("true") for _ in range(30)]
    host.ask(op="launch", attempts=specs)
    for spec in specs:
        host.ended(Attempt(host.home, spec["juid"], 1))
    host.kill_daemon()
    host.ask(op="ping")
    assert host.ask(op="ping")["last_seq"] == 4 * 30
