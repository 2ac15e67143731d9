"""What hosts say, and what becomes of jobs by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from monkey.states import State

from .conftest import HOST, Parts

ENDED: dict[str, Any] = {
    "state": "FAILED",
    "exit_code": 3,
    "reason": "NONZERO_EXIT",
    "message": "Exited with code 3.",
    "started_at": 1.0,
    "ended_at": 2.0,
}


def test_a_job_goes_its_way(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "accepted")
    assert parts.jobs.get(juid)["handed"]
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    assert parts.jobs.get(juid)["state"] == State.RUNNING
    parts.event(juid, "ended", **ENDED)
    job = parts.jobs.get(juid)
    assert (job["state"], job["exit_code"], job["reason"]) == (State.FAILED, 3, "NONZERO_EXIT")
    assert job["attempts"][0]["exit_code"] == 3


def test_replayed_and_late_events_change_nothing(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    parts.event(juid, "ended", **ENDED)
    over = parts.jobs.get(juid)
    for kind, more in (("accepted", {}), ("started", {"gpus": []}), ("paused", {}), ("ended", ENDED)):
        parts.event(juid, kind, **more)
    assert parts.jobs.get(juid) == over


def test_an_event_of_another_attempt_or_host_is_not_taken(parts: Parts) -> None:
    juid = parts.dispatched()
    before = parts.jobs.get(juid)
    parts.follower.on_event(HOST, {"seq": 1, "ts": 1.0, "juid": juid, "attempt": 2, "type": "started", "gpus": []})
    parts.follower.on_event("lab/n1", {"seq": 1, "ts": 1.0, "juid": juid, "attempt": 1, "type": "started", "gpus": []})
    parts.follower.on_event(HOST, {"seq": 1, "ts": 1.0, "juid": "26-01-01-001", "attempt": 1, "type": "started"})
    assert parts.jobs.get(juid) == before


async def _hello(parts: Parts, *attempts: dict[str, Any]) -> None:
    parts.follower.on_hello(HOST, {"attempts": list(attempts)})


async def _lost(parts: Parts, words: str) -> None:
    parts.follower.on_lost(HOST, words)


def run(work: Any) -> None:
    asyncio.run(work)


def test_unreachable_is_not_failed(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    run(_hello(parts, {"juid": juid, "attempt": 1, "state": "RUNNING"}))
    run(_lost(parts, "connection refused"))
    job = parts.jobs.get(juid)
    assert (job["state"], job["reason"]) == (State.RUNNING, "HOST_UNREACHABLE")
    run(_hello(parts, {"juid": juid, "attempt": 1, "state": "RUNNING"}))
    assert parts.jobs.get(juid)["reason"] == "STARTED"


def test_a_client_that_was_removed_is_brought_again(parts: Parts) -> None:
    parts.board.record(parts.host, facts={"cpus": 2, "memory_mb": 1000, "gpus": []}, installed=True, trees={"t"})
    words = "python3: can't open file '/h/monkey-client.pyz': [Errno 2] No such file or directory"
    explained = parts.board.explain(parts.host, words)
    assert "has no client any more" in explained
    run(_lost(parts, explained))
    assert (parts.host.installed, parts.host.trees) == (False, set())

    async def ready() -> bool:
        return parts.board.views()[0].ready

    assert asyncio.run(ready())
    parts.board.record(parts.host, installed=True)
    parts.board.explain(parts.host, "ssh: connect to host h port 22: Connection refused")
    assert parts.host.installed


def test_what_was_started_and_not_recorded_is_adopted(parts: Parts) -> None:
    juid = parts.dispatched()
    run(_hello(parts, {"juid": juid, "attempt": 1, "state": "RUNNING"}))
    assert parts.jobs.get(juid)["handed"]


def test_an_attempt_that_its_host_has_forgotten_is_lost(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    run(_hello(parts))
    assert parts.jobs.get(juid)["state"] == State.LOST


def test_a_list_older_than_the_launch_loses_nothing(parts: Parts) -> None:
    from monkey.events import HostStream

    juid = parts.dispatched()
    parts.host.stream = HostStream(HOST, ["true"], core_id="core", version="1", listener=parts.follower)
    parts.host.stream.began_at = parts.live.clock()
    # Brought there by a playbook while the connection was being made; its list knows nothing of it yet.
    parts.jobs.change(juid, handed=True)
    run(_hello(parts))
    assert parts.jobs.get(juid)["state"] == State.DISPATCHING
    parts.host.stream.began_at = parts.live.clock() + 1
    run(_hello(parts))
    assert parts.jobs.get(juid)["state"] == State.LOST


def test_a_cancel_that_the_host_did_not_hear_is_said_again(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.jobs.change(juid, cancel_requested=True)
    run(_hello(parts, {"juid": juid, "attempt": 1, "state": "RUNNING"}))
    assert parts.orders.orders == [("cancel", juid, 1)]


def test_a_cancelled_job_says_that_it_was_the_user(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    parts.jobs.change(juid, cancel_requested=True)
    parts.event(juid, "ended", **{**ENDED, "state": "CANCELLED", "reason": "CANCELLED", "exit_code": None})
    job = parts.jobs.get(juid)
    assert (job["state"], job["reason"]) == (State.CANCELLED, "CANCELLED_BY_USER")


def test_results_are_waited_for_in_cleanup(parts: Parts) -> None:
    juid = parts.dispatched(persist=[{"name": "output", "path": "output", "tree": None}])
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    parts.event(juid, "ended", **ENDED)
    job = parts.jobs.get(juid)
    assert job["state"] == State.CLEANUP
    assert job["outcome"]["state"] == State.FAILED


@pytest.mark.parametrize("kind", ["paused", "resumed"])
def test_pause_and_resume(parts: Parts, kind: str) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", pid=1, cpus=1, gpus=[])
    parts.event(juid, "paused")
    if kind == "resumed":
        parts.event(juid, "resumed")
    assert parts.jobs.get(juid)["state"] == {"paused": State.PAUSED, "resumed": State.RUNNING}[kind]


def test_logs_of_other_attempts_are_not_mixed_in(parts: Parts) -> None:
    juid = parts.dispatched()
    assert parts.follower.on_log(HOST, juid, 1, 0, b"mine")
    assert parts.follower.on_log(HOST, juid, 7, 0, b"not mine")
    assert not parts.follower.on_log(HOST, juid, 1, 100, b"gap")
    assert parts.logs.path(juid, 1).read_bytes() == b"mine"
    assert parts.follower.log_offsets(HOST) == {f"{juid}.1": 4}
