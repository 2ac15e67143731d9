"""No job stays for ever in a state that is not final."""

from __future__ import annotations

from typing import Any

import pytest

from monkey.core.deadlines import DEADLINE, PHASE, limit_of, passed
from monkey.core.live import LiveJobs
from monkey.core.wave import need
from monkey.states import DEADLINES, LIVE, Reason, State

from .conftest import Parts


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def picture(parts: Parts, *jobs: Any) -> tuple[LiveJobs, Clock]:
    clock = Clock()
    live = LiveJobs(need, parts.jobs.state_of, clock)
    for job in jobs:
        live.note(job)
    return live, clock


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_state_ends_some_day(parts: Parts, state: State) -> None:
    job = parts.add()
    job.update(state=str(state), attempts=[{"attempt": 1, "retry": {"delay_s": 10.0}}])
    live, clock = picture(parts, job)
    clock.now += DEADLINES[state].seconds - 1
    assert (job["juid"], DEADLINE) not in live.timers.pop(clock.now)
    clock.now += 2
    assert (job["juid"], DEADLINE) in live.timers.pop(clock.now)
    assert passed(job, DEADLINE) == DEADLINES[state]


def test_a_sign_of_life_keeps_a_running_job(parts: Parts) -> None:
    job = parts.add()
    job["state"] = str(State.RUNNING)
    live, clock = picture(parts, job)
    clock.now += DEADLINES[State.RUNNING].seconds + 1
    assert live.timers.pop(clock.now) == [(job["juid"], DEADLINE)]
    live.postpone(job["juid"], clock.now + 60)
    assert live.timers.next() == clock.now + 60


def test_a_new_reason_does_not_begin_the_state_anew(parts: Parts) -> None:
    job = parts.add()
    live, clock = picture(parts, job)
    first = live.timers.next()
    clock.now += 100
    live.note({**job, "reason": "WAITING_FOR_SLOT"})
    assert live.timers.next() == first


def test_a_phase_has_the_limit_that_the_job_gives_it(parts: Parts) -> None:
    job = parts.add(phase_limits_s={"setup": 60.0, "queued": 5.0})
    live, clock = picture(parts, job)
    assert live.timers.pop(clock.now + 6) == [(job["juid"], PHASE)]
    assert passed(job, PHASE).then == State.TIMED_OUT
    job.update(state=str(State.DISPATCHING), phase="installs")
    live.note(job)
    assert limit_of(job) is None
    clock.now += 30
    job["phase"] = "setup"
    live.note(job)
    assert live.timers.pop(clock.now + 59) == []
    assert live.timers.pop(clock.now + 61) == [(job["juid"], PHASE)]
    assert (passed(job, PHASE).then, passed(job, PHASE).reason) == (State.FAILED_SETUP, Reason.PHASE_LIMIT)


def test_what_has_ended_has_no_deadline(parts: Parts) -> None:
    job = parts.add()
    live, _ = picture(parts, job)
    live.note({**job, "state": str(State.CANCELLED)})
    assert live.timers.next() is None
