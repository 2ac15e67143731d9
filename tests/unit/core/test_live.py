"""The picture of live jobs: what is in the queue, what waits for what, what is where."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from monkey.api.models import Dependency
from monkey.core.leases import GRACE_S, Leases
from monkey.errors import UsageProblem
from monkey.retrying import surely_over_s
from monkey.states import Reason, State
from monkey.submit import dependencies

from .conftest import HOST, Parts


def needs(parent: Any, when: str = "success") -> list[dict[str, str]]:
    return [{"job": parent["juid"], "when": when}]


@pytest.mark.parametrize(
    ("when", "end", "follows"),
    [("success", "SUCCEEDED", "queue"), ("success", "FAILED", "doomed"), ("end", "FAILED", "queue")],
)
def test_a_job_waits_for_another_one(parts: Parts, when: str, end: str, follows: str) -> None:
    parent = parts.dispatched()
    child = str(parts.add(depends_on=needs({"juid": parent}, when))["juid"])
    assert child not in parts.live.queue
    assert parts.live.waiting_for(child) == {parent: when}
    parts.event(parent, "started", gpus=[])
    parts.event(parent, "ended", state=end, exit_code=1, reason="EXITED", message="Over.", started_at=1.0)
    assert (child in parts.live.queue) == (follows == "queue")
    assert (child in parts.live.doomed) == (follows == "doomed")


def test_what_it_waits_for_may_have_ended_before(parts: Parts) -> None:
    parent = str(parts.add()["juid"])
    parts.jobs.change(parent, State.CANCELLED, Reason.CANCELLED_BY_USER)
    assert str(parts.add(depends_on=needs({"juid": parent}))["juid"]) in parts.live.doomed
    assert str(parts.add(depends_on=needs({"juid": parent}, "end"))["juid"]) in parts.live.queue


def test_held_jobs_are_not_in_the_queue(parts: Parts) -> None:
    juid = str(parts.add()["juid"])
    parts.jobs.change(juid, held=True)
    assert juid not in parts.live.queue
    parts.jobs.change(juid, held=False)
    assert juid in parts.live.queue


def test_what_jobs_hold_comes_and_goes(parts: Parts) -> None:
    juid = parts.dispatched(resources={"cpus": 0.3, "gpus": 1, "memory_mb": 100}, queue="q", max_parallel=1)
    use = parts.live.use(HOST)
    assert (use.cpus, use.gpus, use.memory_mb, use.jobs, parts.live.out["q"]) == (0.3, 1, 100, 1, 1)
    parts.event(juid, "started", gpus=[])
    parts.event(juid, "ended", state="FAILED", exit_code=1, reason="NONZERO_EXIT", message="Over.", started_at=1.0)
    assert (parts.live.use(HOST).jobs, parts.live.out["q"], parts.live.on(HOST)) == (0, 0, [])


def test_a_picture_taken_after_a_restart_is_the_same(parts: Parts) -> None:
    from monkey.core.live import LiveJobs
    from monkey.core.wave import need
    from monkey.states import LIVE

    parent = parts.dispatched()
    child = str(parts.add(depends_on=needs({"juid": parent}))["juid"])
    free = str(parts.add()["juid"])
    again = LiveJobs(need, parts.jobs.state_of)
    again.load(parts.jobs.in_states(*LIVE))
    assert again.waiting_for(child) == {parent: "success"}
    assert [juid in again.queue for juid in (free, child, parent)] == [True, False, False]
    assert again.use(HOST) == parts.live.use(HOST)


def test_circles_are_refused(parts: Parts) -> None:
    first = parts.add()
    second = parts.add(depends_on=needs(first))
    third = parts.add(depends_on=needs(second))
    with pytest.raises(UsageProblem, match="this job itself"):
        dependencies([Dependency(job=first["juid"])], parts.jobs, first["juid"])
    with pytest.raises(UsageProblem, match="circle"):
        dependencies([Dependency(job=third["nickname"])], parts.jobs, first["juid"])
    with pytest.raises(UsageProblem, match="no job 'nobody'"):
        dependencies([Dependency(job="nobody")], parts.jobs, None)
    assert dependencies([Dependency(job="train")], parts.jobs, None)[0]["job"] == third["juid"]


class Clock:
    now = 500.0

    def __call__(self) -> float:
        return self.now


def leased(parts: Parts, **fields: Any) -> tuple[str, Leases, Clock]:
    juid = parts.dispatched(retries=1, lease_s=30.0, **fields)
    clock = Clock()
    return juid, Leases(parts.board, parts.jobs, parts.live, lambda work: work.close(), clock), clock


def test_a_lost_attempt_is_given_up_when_its_lease_is_surely_over(parts: Parts) -> None:
    juid, leases, clock = leased(parts)
    parts.event(juid, "started", gpus=[])
    leases.step()
    clock.now += surely_over_s(30.0, GRACE_S) - 0.1
    leases.step()
    assert parts.jobs.get(juid)["state"] == State.RUNNING
    clock.now += 0.2
    leases.step()
    job = parts.jobs.get(juid)
    assert (job["state"], job["attempts"][0]["state"]) == (State.RECOVERING, "LOST")


def test_what_the_host_may_not_have_got_is_not_given_up(parts: Parts) -> None:
    juid, leases, clock = leased(parts)
    leases.step()
    clock.now += 10_000
    leases.step()
    assert parts.jobs.get(juid)["state"] == State.DISPATCHING


def test_a_host_that_answers_is_never_given_up(parts: Parts) -> None:
    juid, leases, clock = leased(parts)

    async def story() -> None:
        parts.follower.on_hello(HOST, {"attempts": [{"juid": juid, "attempt": 1, "state": "RUNNING"}]})

    asyncio.run(story())
    leases.step()
    clock.now += 10_000
    leases.step()
    assert parts.jobs.get(juid)["state"] == State.DISPATCHING
    assert not parts.jobs.is_over(parts.jobs.get(juid))


def test_an_attempt_that_was_given_up_is_ended_when_its_host_comes_back(parts: Parts) -> None:
    juid, leases, clock = leased(parts)
    parts.event(juid, "started", gpus=[])
    leases.step()
    clock.now += 10_000
    leases.step()

    async def story() -> None:
        parts.follower.on_hello(HOST, {"attempts": [{"juid": juid, "attempt": 1, "state": "RUNNING"}]})

    asyncio.run(story())
    assert parts.orders.orders == [("cancel", juid, 1)]
    assert parts.jobs.get(juid)["state"] == State.RECOVERING
