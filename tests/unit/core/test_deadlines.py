"""No job stays for ever in a state that is not final."""

from __future__ import annotations

import pytest

from monkey.core.deadlines import entered_at, overdue
from monkey.states import DEADLINES, LIVE, Reason, State

from .conftest import Parts


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_state_ends_some_day(parts: Parts, state: State) -> None:
    job = parts.add()
    job["state"] = str(state)
    job["history"][-1]["state"] = str(state)
    since = entered_at(job)
    limit_s = DEADLINES[state].seconds
    assert overdue(job, since + limit_s - 1, 0.0) is None
    assert overdue(job, since + limit_s + 1, 0.0) == DEADLINES[state]


def test_a_sign_of_life_keeps_a_running_job(parts: Parts) -> None:
    juid = parts.dispatched()
    parts.event(juid, "started", gpus=[])
    job = parts.jobs.get(juid)
    later = entered_at(job) + DEADLINES[State.RUNNING].seconds + 1
    assert overdue(job, later, later - 60) is None
    assert overdue(job, later, 0.0) is not None


def test_a_new_reason_does_not_begin_the_state_anew(parts: Parts) -> None:
    juid = str(parts.add()["juid"])
    began = entered_at(parts.jobs.get(juid))
    parts.jobs.change(juid, None, Reason.WAITING_FOR_SLOT)
    assert entered_at(parts.jobs.get(juid)) == began


def test_what_has_ended_has_no_deadline(parts: Parts) -> None:
    juid = str(parts.add()["juid"])
    parts.jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER)
    assert overdue(parts.jobs.get(juid), 1e12, 0.0) is None
