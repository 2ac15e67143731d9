"""Whether an attempt that ended is followed by another one."""

from __future__ import annotations

from typing import Any

import pytest

from monkey.core.ending import conclude, never_there, requeue
from monkey.retrying import DEFAULT_LEASE_S, Retry, lease_s, verdict
from monkey.states import Reason, State

from .conftest import Parts


def outcome(state: str, reason: str = "NONZERO_EXIT") -> dict[str, Any]:
    return {"state": state, "reason": reason, "message": None}


def asked(**fields: Any) -> dict[str, Any]:
    plain = {"retries": 2, "retry_on": None, "retry_delay_s": 10.0, "retries_used": 0, "exit_code": 3, "lease_s": None}
    return {**plain, "cancel_requested": False, **fields}


@pytest.mark.parametrize(
    ("retry_on", "state", "reason", "again"),
    [
        (None, "FAILED", "NONZERO_EXIT", True),
        (None, "LOST", "HOST_LOST", True),
        (None, "LOST", "PREEMPTED", True),
        (None, "FAILED_SETUP", "SETUP_FAILED", False),
        (None, "TIMED_OUT", "TIME_LIMIT", False),
        ([3], "FAILED", "NONZERO_EXIT", True),
        ([4, "lost"], "FAILED", "NONZERO_EXIT", False),
        (["setup"], "FAILED_SETUP", "ENVIRONMENT_FAILED", True),
        (["timed_out"], "TIMED_OUT", "TIME_LIMIT", True),
        (["preempted"], "LOST", "HOST_LOST", False),
        (None, "CANCELLED", "CANCELLED", False),
        (None, "SUCCEEDED", "EXITED", False),
    ],
)
def test_retry_on_says_what_is_tried_again(retry_on: Any, state: str, reason: str, again: bool) -> None:
    said = verdict(asked(retry_on=retry_on), outcome(state, reason))
    assert isinstance(said, Retry) == again


def test_the_pause_doubles_up_to_ten_minutes_and_retries_end() -> None:
    def pause_s(used: int) -> float:
        said = verdict(asked(retries=20, retries_used=used), outcome("FAILED"))
        assert isinstance(said, Retry)
        return said.delay_s

    assert [pause_s(used) for used in (0, 1, 2, 10)] == [10.0, 20.0, 40.0, 600.0]
    said = verdict(asked(retries_used=2), outcome("FAILED"))
    assert said == "not tried again: all 2 retries are used up"
    assert "cancelled" in str(verdict(asked(cancel_requested=True), outcome("FAILED")))


def test_only_what_may_be_started_elsewhere_has_a_lease() -> None:
    assert lease_s(asked()) == DEFAULT_LEASE_S
    assert lease_s(asked(retries=0)) is None
    assert lease_s(asked(retry_on=["failed"])) is None
    assert lease_s(asked(retry_on=["failed"], lease_s=30.0)) == 30.0


def test_an_attempt_that_failed_is_followed_by_a_fresh_one(parts: Parts) -> None:
    juid = parts.dispatched(retries=1, persist=[])
    parts.event(juid, "started", gpus=[])
    parts.event(juid, "ended", state="FAILED", exit_code=3, reason="NONZERO_EXIT", message="Exited.", started_at=1.0)
    job = parts.jobs.get(juid)
    assert (job["state"], job["reason"], job["retries_used"]) == (State.RECOVERING, Reason.RETRYING, 1)
    assert (job["attempts"][0]["state"], job["attempts"][0]["exit_code"]) == ("FAILED", 3)
    # Its host says it again, and late things: the attempt is over.
    for kind in ("started", "paused", "ended"):
        parts.event(juid, kind, state="SUCCEEDED", exit_code=0, reason="EXITED", started_at=1.0, gpus=[])
    assert parts.jobs.get(juid) == job
    assert juid not in parts.live.queue
    requeue(parts.jobs, juid, Reason.RELEASED)
    job = parts.jobs.get(juid)
    assert (job["state"], job["exit_code"], job["host"], job["handed"]) == (State.QUEUED, None, None, False)
    assert juid in parts.live.queue
    assert job["attempts"][0]["state"] == "FAILED"


def test_between_the_end_and_what_follows_there_is_no_crash(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", gpus=[])
    recorded: list[str] = []
    commit = parts.store.commit
    parts.store.commit = lambda changes: (recorded.append("commit"), commit(changes))  # type: ignore[method-assign]
    parts.event(juid, "ended", state="FAILED", exit_code=3, reason="NONZERO_EXIT", message="Exited.", started_at=1.0)
    assert recorded == ["commit"]
    states = [entry["state"] for entry in parts.jobs.get(juid)["history"]]
    assert states[-2:] == ["CLEANUP", "FAILED"]


def test_what_never_got_to_its_host_goes_to_another(parts: Parts) -> None:
    juid = parts.dispatched()
    never_there(parts.jobs, juid, "connection refused")
    job = parts.jobs.get(juid)
    assert (job["state"], job["attempt"], job["retries_used"]) == (State.QUEUED, 1, 0)
    assert job["attempts"][0]["over"]
    assert juid in parts.live.queue


def test_a_reset_begins_anew(parts: Parts) -> None:
    juid = parts.dispatched()
    conclude(parts.jobs, juid, {"state": "FAILED_SETUP", "reason": "CODE_FAILED", "message": None})
    requeue(parts.jobs, juid, Reason.RESET, reset=True, retries_used=0)
    assert parts.jobs.get(juid)["state"] == State.QUEUED
    assert parts.jobs.get(juid)["attempts"][0]["state"] == "FAILED_SETUP"
