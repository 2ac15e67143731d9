"""Cancel, pause and limits, on real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError

from .conftest import lives, until

# Ignores SIGTERM, and leaves a grandchild that did so too, in a session of its own and with an empty environment.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import signal, time, os; signal.signal(15, signal.SIG_IGN);"
            "open('pids', 'a').write(str(os.getpid()) + chr(10)); time.sleep(1000)"], {})
    os._exit(0)
open('pids', 'a').write(str(os.getpid()) + chr(10))
while len(open('pids').read().split()) < 2: time.sleep(0.01)
print('ready')
time.sleep(1000)
"""


def pids_of(attempt: Attempt) -> list[int]:
    return [int(text) for text in Path(attempt.path("work/pids")).read_text().split()]


def stubborn(host: Any) -> Attempt:
    attempt = host.launch(sys.executable, "-c", STUBBORN)
    host.said(attempt)
    return attempt


def test_cancel_ends_what_ignores_sigterm_and_left_its_session(host: Any) -> None:
    attempt = stubborn(host)
    pids = pids_of(attempt)
    host.order("cancel", attempt)
    ended = host.ended(attempt)
    assert (ended["state"], ended["reason"], ended["exit_code"]) == ("CANCELLED", "CANCELLED", 137)
    assert [pid for pid in pids if lives(pid)] == []


def test_cancel_ends_them_also_when_the_keeper_was_killed(host: Any) -> None:
    attempt = stubborn(host)
    pids = pids_of(attempt)
    os.kill(attempt.read("keeper.json")["pid"], signal.SIGKILL)
    until(lambda: attempt.has("strays.json"))
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] == "CANCELLED"
    assert [pid for pid in pids if lives(pid)] == []


def test_a_command_that_ends_leaves_no_process_behind(host: Any) -> None:
    attempt = host.launch("sh", "-c", "setsid sleep 1000 & nohup sleep 1000 & exit 4")
    assert host.ended(attempt)["exit_code"] == 4
    assert host.processes(attempt) == []


def test_cancel_gives_time_to_end_well(host: Any) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    attempt = host.launch("sh", "-c", script, grace_s=10)
    host.said(attempt)
    host.order("cancel", attempt)
    ended = host.ended(attempt)
    assert (ended["state"], ended["exit_code"]) == ("CANCELLED", 0)
    assert host.log(attempt).endswith("bye\n")


def test_cancel_while_it_waits_on_the_host(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    host.launch("sleep", "100")
    waiting = host.launch("true")
    assert waiting.state() == "QUEUED"
    host.order("cancel", waiting)
    assert waiting.state() == "CANCELLED"
    assert not waiting.has("start.json")


def test_cancel_during_setup(host: Any) -> None:
    attempt = host.launch("touch", "ran", setup=["echo ready", "sleep 1000"])
    host.said(attempt)
    assert attempt.state() == "SETUP"
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] == "CANCELLED"
    assert not os.path.exists(attempt.path("work/ran"))


def test_cancel_while_paused(host: Any) -> None:
    attempt = host.launch("sleep", "1000")
    host.running(attempt)
    host.order("pause", attempt)
    until(lambda: attempt.state() == "PAUSED")
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] == "CANCELLED"


def test_cancel_before_it_arrives(host: Any) -> None:
    spec = host.spec("true")
    attempt = Attempt(host.home, spec["juid"], 1)
    host.order("cancel", attempt)
    host.kill_daemon()
    assert host.ask(op="launch", attempts=[spec]) == {"accepted": [], "known": [], "cancelled": [attempt.key]}
    assert attempt.state() == "CANCELLED"
    assert [(event["type"], event["state"]) for event in host.journal()] == [("ended", "CANCELLED")]


def test_cancel_after_the_end_changes_nothing(host: Any) -> None:
    attempt = host.launch("true")
    host.ended(attempt)
    assert host.order("cancel", attempt) == {"state": "SUCCEEDED"}


def test_pause_stops_the_whole_tree_and_resume_continues_it(host: Any) -> None:
    script = "(while :; do echo tick >> ticks; sleep 0.01; done) & while :; do sleep 0.01; done"
    attempt = host.launch("sh", "-c", script)
    ticks = Path(attempt.path("work/ticks"))
    until(ticks.exists)
    host.order("pause", attempt)
    until(lambda: attempt.state() == "PAUSED")
    size = ticks.stat().st_size
    time.sleep(0.2)
    assert ticks.stat().st_size == size
    host.order("resume", attempt)
    until(lambda: ticks.stat().st_size > size)
    assert attempt.state() == "RUNNING"
    host.order("cancel", attempt)
    host.ended(attempt)
    kinds = [event["type"] for event in host.journal()]
    assert kinds == ["accepted", "setup", "started", "paused", "resumed", "cancelling", "ended"]


def test_time_limit_does_not_count_a_pause(host: Any) -> None:
    attempt = host.launch("sleep", "0.6", time_limit_s=1.2)
    host.running(attempt)
    host.order("pause", attempt)
    until(lambda: attempt.state() == "PAUSED")
    time.sleep(1.3)
    host.order("resume", attempt)
    assert host.ended(attempt)["state"] == "SUCCEEDED"


def test_time_limit_ends_the_whole_tree(host: Any) -> None:
    attempt = host.launch(sys.executable, "-c", STUBBORN, time_limit_s=0.8)
    ended = host.ended(attempt)
    assert (ended["state"], ended["reason"]) == ("TIMED_OUT", "TIME_LIMIT")
    assert "0.8 s" in ended["message"]
    assert [pid for pid in pids_of(attempt) if lives(pid)] == []


def test_log_quota_keeps_the_first_part_and_the_job_goes_on(host: Any) -> None:
    script = "print('first', flush=True)\nfor _ in range(40): print('x' * 100_000, flush=True)\nopen('over', 'w')"
    attempt = host.launch(sys.executable, "-c", script, log_quota_mb=1)
    assert host.ended(attempt)["exit_code"] == 0
    log = host.log(attempt)
    assert log.startswith("first\nxxx")
    assert "[monkey] The log quota of 1 MiB is used up" in log[-100:]
    assert len(log) < 1024 * 1024 + 200
    assert os.path.exists(attempt.path("work/over"))
    assert "log_quota" in [event["type"] for event in host.journal()]


def test_remove_of_a_running_attempt_is_refused(host: Any) -> None:
    attempt = host.launch("sleep", "100")
    host.running(attempt)
    with pytest.raises(ClientError, match="cancel it first"):
        host.order("remove", attempt)


def test_many_at_once(host: Any) -> None:
    specs = [host.spec("sh", "-c", f"exit {number}") for number in range(40)]
    host.ask(op="launch", attempts=specs)
    codes = [host.ended(Attempt(host.home, spec["juid"], 1))["exit_code"] for spec in specs]
    assert codes == list(range(40))
