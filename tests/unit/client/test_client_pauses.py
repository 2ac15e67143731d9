"""Pause, resume and cancel in every state that an attempt has on its host."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS

from .conftest import lives, until


def pause(host: Any, attempt: Attempt) -> None:
    host.order("pause", attempt)
    until(lambda: attempt.state() == "PAUSED", 5)


def pauses(host: Any, attempt: Attempt) -> list[tuple[str, str | None]]:
    """Its events, with the phase of those that have one."""
    events = [event for event in host.journal() if event["juid"] == attempt.juid]
    return [(event["type"], event.get("phase")) for event in events]


def children(attempt: Attempt) -> list[tuple[int, str]]:
    """(pid, state) of what its keeper started."""
    keeper = attempt.read("keeper.json").get("pid")
    pids = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split() if keeper else []
    return [(int(pid), Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) for pid in pids]


def slow_tree(host: Any, files: int = 8000) -> str:
    """A tree that takes some time to be written out: about a second for 8,000 files."""
    store = MonkeyFS(Path(host.home) / "store")
    sha = store.put_bytes(b"one")
    entry = {"type": "file", "sha256": sha, "size": 3, "mode": 0o644}
    return store.put_tree({"entries": [dict(entry, path=f"f{number:05}") for number in range(files)]})


def test_an_attempt_that_waits_is_held_and_lets_others_pass(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    first = host.launch("sleep", "100")
    held, other = host.launch("true"), host.launch("true")
    assert host.order("pause", held) == {"state": "PAUSED"}
    host.order("pause", held)  # said twice, it counts once
    host.kill_daemon()
    host.order("cancel", first)
    assert host.ended(other)["state"] == "SUCCEEDED"
    assert held.state() == "PAUSED" and not held.has("start.json")
    stream = host.stream()
    hello = stream.wait(lambda message: message["type"] == "hello")
    seen = next(item for item in hello["attempts"] if item["juid"] == held.juid)
    assert [seen[name] for name in ("state", "phase", "paused", "pauses")] == ["PAUSED", "QUEUED", True, 1]
    assert host.order("resume", held)["state"] == "QUEUED"
    assert host.ended(held)["state"] == "SUCCEEDED"
    kinds = [("paused", "QUEUED"), ("resumed", "QUEUED")]
    assert pauses(host, held) == [("accepted", None), *kinds, ("setup", None), ("started", None), ("ended", None)]


def test_a_daemon_killed_while_it_holds_one_holds_it_again(host: Any) -> None:
    host.slots(cpus=64, max_jobs=1)
    first = host.launch("sleep", "100")
    held = host.launch("true")
    host.kill_daemon()
    Path(held.path("pause")).touch()  # killed between this and the record
    host.order("cancel", first)
    host.ended(first)
    assert held.state() == "PAUSED"
    host.order("cancel", held)
    assert held.state() == "CANCELLED"


def test_pause_and_resume_of_setup_lines(host: Any) -> None:
    lines = ["while [ ! -e go ]; do echo x >> ticks; sleep 0.01; done"]
    attempt = host.launch("touch", "ran", setup=lines, time_limit_s=0.5)
    ticks = Path(attempt.path("work/ticks"))
    until(ticks.exists)
    pause(host, attempt)
    size = ticks.stat().st_size
    time.sleep(0.2)
    assert ticks.stat().st_size == size and attempt.phase() == "SETUP"
    host.order("resume", attempt)
    until(lambda: ticks.stat().st_size > size)
    Path(attempt.path("work/go")).touch()
    assert host.ended(attempt)["state"] == "SUCCEEDED"
    assert pauses(host, attempt)[2:4] == [("paused", "SETUP"), ("resumed", "SETUP")]


def test_a_pause_in_setup_does_not_make_the_time_limit_longer(host: Any) -> None:
    lines = ["while [ ! -e go ]; do sleep 0.01; done"]
    attempt = host.launch("sleep", "100", setup=lines, time_limit_s=0.3)
    until(lambda: attempt.has("setup.json"))
    pause(host, attempt)
    time.sleep(1.0)
    Path(attempt.path("work/go")).touch()
    host.order("resume", attempt)
    ended = host.ended(attempt)
    assert ended["reason"] == "TIME_LIMIT" and ended["ended_at"] - ended["started_at"] < 0.9


def test_pause_while_the_work_folder_is_written(host: Any) -> None:
    attempt = host.launch("cat", "f07999", code=slow_tree(host))
    until(lambda: children(attempt))
    pause(host, attempt)
    assert [state for _pid, state in children(attempt)] == ["T"]
    assert not os.path.exists(attempt.path("work/f07999"))
    host.order("resume", attempt)
    assert host.ended(attempt)["state"] == "SUCCEEDED" and host.log(attempt) == "one"


@pytest.mark.parametrize("first", ["nothing", "pause", "keeper killed"])
def test_cancel_while_the_work_folder_is_written(host: Any, first: str) -> None:
    attempt = host.launch("touch", "ran", code=slow_tree(host))
    ((pid, _state),) = until(lambda: children(attempt))
    if first == "pause":
        pause(host, attempt)
    if first == "keeper killed":
        os.kill(host.keeper(attempt), signal.SIGKILL)
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] in ("CANCELLED", "LOST" if first == "keeper killed" else "CANCELLED")
    assert not lives(pid) and not os.path.exists(attempt.path("work/ran"))


@pytest.fixture
def data(host: Any) -> Iterator[tuple[str, int]]:
    """A data set that another attempt is writing out: its id, and the lock."""
    tree = MonkeyFS(Path(host.home) / "store").put_tree({"entries": [{"path": "empty", "type": "dir"}]})
    lock = os.open(os.path.join(host.home, "data", f".{tree}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield tree, lock
    os.close(lock)


def test_a_pause_stops_nothing_that_others_wait_for(host: Any, data: tuple[str, int]) -> None:
    tree, lock = data
    attempt = host.launch("touch", "ran", data=[{"name": "d", "path": "d", "tree": tree}])
    until(lambda: children(attempt))
    pause(host, attempt)
    assert [state for _pid, state in children(attempt)] == ["S"]
    fcntl.flock(lock, fcntl.LOCK_UN)
    until(lambda: os.path.isdir(os.path.join(host.home, "data", tree)))  # for whoever wants it
    until(lambda: not children(attempt))
    time.sleep(0.1)
    assert attempt.state() == "PAUSED" and not attempt.has("work")
    host.order("resume", attempt)
    assert host.ended(attempt)["state"] == "SUCCEEDED" and os.path.exists(attempt.path("work/ran"))


def test_orders_to_one_that_is_being_cancelled(host: Any) -> None:
    attempt = host.launch("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=0.8)
    host.said(attempt)
    assert host.order("cancel", attempt)["state"] == "CANCELLING"
    for operation in ("pause", "resume"):
        with pytest.raises(ClientError, match="is CANCELLING on this host"):
            host.order(operation, attempt)
    assert host.order("cancel", attempt)["state"] == "CANCELLING"
    assert host.ended(attempt, timeout_s=5)["state"] == "CANCELLED"


def test_a_pause_before_it_arrives_is_refused(host: Any) -> None:
    spec = host.spec("true")
    attempt = Attempt(host.home, spec["juid"], 1)
    with pytest.raises(ClientError, match="not launched here yet; ask again once it is"):
        host.order("pause", attempt)
    host.ask(op="launch", attempts=[spec])
    assert host.ended(attempt)["state"] == "SUCCEEDED"
    with pytest.raises(ClientError, match="is SUCCEEDED on this host"):
        host.order("pause", attempt)


def test_an_order_continues_a_keeper_that_was_stopped(host: Any) -> None:
    attempt = host.launch("sleep", "100")
    host.running(attempt)
    os.kill(host.keeper(attempt), signal.SIGSTOP)
    host.order("cancel", attempt)
    assert host.ended(attempt, timeout_s=5)["state"] == "CANCELLED"


def test_cancel_of_one_that_the_core_gave_up(host: Any) -> None:
    attempt = host.launch("sleep", "100", lease_s=0.2)
    assert host.ended(attempt)["reason"] == "LEASE_ENDED"
    assert host.order("cancel", attempt) == {"state": "LOST"}
    assert [kind for kind, _phase in pauses(host, attempt)][-1] == "ended"
