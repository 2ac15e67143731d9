"""Leases: an attempt that nobody renews is ended by its host, whatever of the client was stopped meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt, accept
from ansible_collections.monkey.runner.plugins.module_utils.client.files import boot_seconds
from ansible_collections.monkey.runner.plugins.module_utils.client.leases import Leases
from ansible_collections.monkey.runner.plugins.module_utils.client.spec import check_spec
from ansible_collections.monkey.runner.plugins.module_utils.client.timer import BootTimer

from .conftest import lives, until

# A line in `runs` for each start; leaves a child with an empty environment in a session of its own.
BUSY = "echo run >> runs; env -i setsid sleep 1000 & echo $! > child; echo ready; while :; do sleep 0.05; done"


def stop(*pids: int) -> None:
    for pid in pids:
        # A keeper may end between being listed and being stopped.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        until(lambda pid=pid: state_of(pid) == "T")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def busy(host: Any, lease_s: float) -> Attempt:
    attempt = host.launch("sh", "-c", BUSY, lease_s=lease_s)
    host.said(attempt)
    return attempt


def check_lost(host: Any, attempt: Attempt, timeout_s: float) -> dict[str, Any]:
    """It ended for its lease, nothing of it is left, and it was started once."""
    ended = host.ended(attempt, timeout_s)
    assert (ended["state"], ended["reason"]) == ("LOST", "LEASE_ENDED")
    assert host.processes(attempt) == []
    assert not lives(int(Path(attempt.path("work/child")).read_text()))
    time.sleep(0.1)
    assert Path(attempt.path("work/runs")).read_text() == "run\n"
    return ended


def test_a_lease_ends_the_attempt_unless_renewed(host: Any) -> None:
    attempt = busy(host, lease_s=0.8)
    until_s = time.monotonic() + 1.6
    while time.monotonic() < until_s:
        assert host.renew(attempt)["renewed"] == [attempt.key]
        time.sleep(0.1)
    assert attempt.state() == "RUNNING"
    host.kill_daemon()
    check_lost(host, attempt, timeout_s=2.5)  # by the keeper alone


def test_a_renewal_counts_for_those_it_names(host: Any) -> None:
    kept, given_up, free = busy(host, 1.0), busy(host, 1.0), host.launch("sleep", "100")
    unknown = Attempt(host.home, "nobody", 3)
    answer = host.renew(kept, free, unknown, extra_s=100)
    assert (answer["renewed"], answer["over"]) == ([kept.key, free.key], [unknown.key])
    assert 0 <= boot_seconds() - answer["boot_s"] < 5
    check_lost(host, given_up, timeout_s=4)
    assert kept.state() == "RUNNING"
    assert host.renew(given_up)["over"] == [given_up.key]


def test_a_renewal_counts_from_when_it_was_said(host: Any) -> None:
    attempt = host.launch("sleep", "100", lease_s=50)
    first = attempt.lease_until()
    now = boot_seconds()
    for at in (0.0, now - 40):  # it lay in the buffer of a cut line
        assert (host.renew(attempt, at=at, extra_s=86_400)["renewed"], attempt.lease_until()) == ([], first)
    host.renew(attempt, at=now + 10_000)  # the word of another boot
    assert first <= attempt.lease_until() <= boot_seconds() + 50


def test_extra_time_is_taken_back_by_a_newer_word(host: Any) -> None:
    attempt = host.launch("sleep", "100", lease_s=50)
    first = boot_seconds()
    for extra_s in (0, 86_400):  # the core stops on purpose
        assert host.renew(attempt, at=first, extra_s=extra_s)["renewed"] == [attempt.key]
    assert host.renew(attempt, at=first)["renewed"] == []
    assert attempt.lease_until() == pytest.approx(first + 86_450, abs=0.01)
    host.kill_daemon()
    assert host.renew(attempt, at=first)["renewed"] == []
    assert attempt.lease_until() == pytest.approx(first + 86_450, abs=0.01)
    # Had it kept the extra time, its core would think it over while it runs on.
    second = boot_seconds()
    assert host.renew(attempt, at=second)["renewed"] == [attempt.key]
    assert attempt.lease_until() == pytest.approx(second + 50, abs=0.01)
    assert host.renew(attempt, at=first, extra_s=86_400)["renewed"] == []
    assert attempt.lease_until() == pytest.approx(second + 50, abs=0.01)


def test_a_keeper_hears_that_extra_time_was_taken_back(host: Any) -> None:
    attempt = busy(host, lease_s=0.6)
    host.renew(attempt, extra_s=100)
    time.sleep(0.1)
    host.renew(attempt)
    check_lost(host, attempt, timeout_s=2)


def test_a_lease_that_ended_is_not_begun_anew(host: Any) -> None:
    attempt = host.launch("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", lease_s=0.7, grace_s=1)
    host.said(attempt)
    until(lambda: boot_seconds() > attempt.lease_until())
    assert attempt.state() == "RUNNING"  # in its grace
    assert host.renew(attempt, extra_s=100)["over"] == [attempt.key]
    assert host.ended(attempt, timeout_s=4)["reason"] == "LEASE_ENDED"


def test_leases_outlive_the_daemon(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    runs, waits = host.launch("sleep", "100", lease_s=50), host.launch("true", lease_s=50)
    host.renew(runs, waits, extra_s=100)
    before = [runs.lease_until(), waits.lease_until()]
    host.kill_daemon()
    host.ask(op="ping")
    assert [runs.lease_until(), waits.lease_until()] == before
    answer = host.renew(runs, waits)
    assert answer["renewed"] == [runs.key, waits.key]


def test_a_lease_ends_while_it_waits_on_the_host(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    host.launch("sleep", "100")
    waiting = host.launch("true", lease_s=0.3)
    assert host.ended(waiting)["reason"] == "LEASE_ENDED"
    assert not waiting.has("start.json")


def test_a_lease_of_another_boot_has_ended(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    host.launch("sleep", "100")
    waiting = host.launch("true", lease_s=1000)
    host.kill_daemon()
    Path(waiting.path("lease")).write_text("another boot")
    host.renew()
    assert host.ended(waiting)["reason"] == "LEASE_ENDED"


def test_a_lease_ends_in_setup_and_while_paused(host: Any) -> None:
    setup = host.launch("touch", "ran", setup=["echo ready", "sleep 1000"], lease_s=0.8)
    paused = busy(host, lease_s=0.9)
    host.order("pause", paused)
    until(lambda: paused.state() == "PAUSED")
    ended = host.ended(setup, timeout_s=3)
    assert (ended["state"], ended["reason"]) == ("LOST", "LEASE_ENDED")
    assert host.processes(setup) == [] and not os.path.exists(setup.path("work/ran"))
    check_lost(host, paused, timeout_s=3)


def test_a_stopped_keeper_is_continued_to_end_its_attempt(host: Any) -> None:
    attempt = busy(host, lease_s=0.6)
    keeper = host.keeper(attempt)
    stop(keeper)
    check_lost(host, attempt, timeout_s=3)
    assert host.keeper(attempt) == keeper


def test_a_keeper_that_is_stopped_again_and_again_is_replaced(host: Any) -> None:
    attempt = busy(host, lease_s=0.6)
    keeper = host.keeper(attempt)
    lease = attempt.lease_until()
    while attempt.exit() is None and lives(keeper) and boot_seconds() < lease + 6:
        try:
            os.kill(keeper, signal.SIGSTOP)
        except ProcessLookupError:
            break
        time.sleep(0.0002)
    check_lost(host, attempt, timeout_s=3)
    assert host.keeper(attempt) != keeper
    assert boot_seconds() < lease + 0.3 + 5  # what the core waits: lease, grace and 5 s


def test_a_keeper_stopped_in_setup_never_comes_to_the_command(host: Any) -> None:
    attempt = host.launch("touch", "ran", setup=["echo ready", "sleep 1000"], lease_s=0.8)
    host.said(attempt)
    daemon, keeper = host.daemon_pid(), host.keeper(attempt)
    stop(daemon, keeper)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: boot_seconds() > attempt.lease_until())
    os.kill(daemon, signal.SIGCONT)
    assert host.ended(attempt, timeout_s=3)["reason"] == "LEASE_ENDED"
    assert host.processes(attempt) == [] and not os.path.exists(attempt.path("work/ran"))


@pytest.mark.parametrize("who", ["core", "keepers alone"])
def test_everything_stopped_past_the_lease(host: Any, who: str) -> None:
    attempt = busy(host, lease_s=0.8)
    stream = host.stream()
    stream.wait(lambda message: message["type"] == "started")
    everyone = [host.daemon_pid(), host.keeper(attempt), stream.process.pid]
    stop(*everyone)
    until(lambda: boot_seconds() > attempt.lease_until() + 0.5)
    assert attempt.state() == "RUNNING"  # nobody is there to end it
    began = time.monotonic()
    if who == "core":
        # As after a new connection: its stream finds the daemon stopped, the daemon the keeper.
        host.stream().wait(lambda message: message.get("type") == "ended" and message["reason"] == "LEASE_ENDED")
        stream.process.kill()
        stream.process.wait()
    else:
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
    check_lost(host, attempt, timeout_s=2)
    assert time.monotonic() - began < 3


def test_whoever_asks_continues_a_stopped_daemon(host: Any) -> None:
    daemon = host.daemon_pid()
    stop(daemon)
    began = time.monotonic()
    assert host.ask(op="ping")["pid"] == daemon
    assert time.monotonic() - began < 1


def test_another_process_with_the_daemons_number_is_left_alone(host: Any) -> None:
    host.kill_daemon()
    other = subprocess.Popen(["sleep", "100"])
    try:
        path = Path(host.home, "client.json")
        path.write_text(json.dumps(dict(json.loads(path.read_text()), pid=other.pid)))
        stop(other.pid)
        assert host.ask(op="ping")["pid"] != other.pid
        assert state_of(other.pid) == "T"
    finally:
        other.kill()
        other.wait()


def test_the_stream_tells_the_hosts_clock_and_takes_many_renewals(host: Any) -> None:
    attempts = [host.launch("sleep", "100", lease_s=60) for _ in range(2)]
    stream = host.stream()
    hello = stream.wait(lambda message: message["type"] == "hello")
    machine = stream.wait(lambda message: message["type"] == "machine")
    assert 0 <= machine["boot_s"] - hello["boot_s"] < 5 and abs(boot_seconds() - hello["boot_s"]) < 10
    keys = [attempt.key for attempt in attempts]
    stream.say(op="renew", id=7, at=machine["boot_s"], attempts=[*keys, "gone.2"], extra_s=100)
    reply = stream.wait(lambda message: message.get("id") == 7)
    assert reply["ok"] and reply["result"]["renewed"] == keys and reply["result"]["over"] == ["gone.2"]
    assert reply["result"]["boot_s"] >= machine["boot_s"]
    assert all(attempt.lease_until() == pytest.approx(machine["boot_s"] + 160, abs=0.01) for attempt in attempts)
    for wrong in ({"at": "now"}, {"at": 1, "attempts": "x"}, {"at": 1, "attempts": ["x"]}, {"at": 1, "extra_s": -1}):
        stream.say(op="renew", id=8, **{"attempts": [], **wrong})
        reply = stream.wait(lambda message: message.get("id") == 8)
        assert not reply["ok"] and reply["error"]
        stream.seen.remove(reply)


def test_renewing_a_thousand_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attempts").mkdir()
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # of accept, which is not measured
    leases = Leases(lambda key: None)
    attempts = []
    for number in range(1000):
        spec = check_spec({"juid": f"t-{number}", "attempt": 1, "command": ["true"], "lease_s": 900})
        attempts.append(accept(str(tmp_path), spec, number))
        leases.follow(attempts[-1])
    costs_s = []
    for _ in range(5):
        began = time.process_time()
        answer = leases.renew(boot_seconds(), [attempt.key for attempt in attempts], 0)
        costs_s.append(time.process_time() - began)
        assert len(answer["renewed"]) == 1000
    assert attempts[999].lease_until() == pytest.approx(boot_seconds() + 900, abs=1)
    assert min(costs_s) < 0.1, f"{min(costs_s) * 1000:.1f} ms; 3-6 ms when this was written"


def test_the_timer_is_on_the_clock_that_counts_sleep() -> None:
    timer = BootTimer()
    try:
        for later_s in (-5.0, 0.1):
            timer.set(boot_seconds() + later_s)
            began = time.monotonic()
            assert select.select(timer.descriptors(), [], [], 2)[0]
            assert time.monotonic() - began == pytest.approx(max(0.0, later_s), abs=0.09)
            timer.clear()
            assert not select.select(timer.descriptors(), [], [], 0)[0]
        clocks = Path(f"/proc/self/fdinfo/{timer.descriptors()[0]}").read_text()
        assert f"clockid: {time.CLOCK_BOOTTIME}" in clocks
    finally:
        timer.close()
