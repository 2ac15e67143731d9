"""Limits of time: every state that is not final has a deadline (KubeRay #3903), and a job may set shorter ones for the
phases of its own way. Pure functions.
"""

from __future__ import annotations

from typing import Any

from monkey.jobs import Job
from monkey.states import DEADLINES, Deadline, Reason, State

DEADLINE = "deadline"
PHASE = "phase"

_PHASE_OF: dict[State, str] = {State.QUEUED: "queued", State.CLEANUP: "cleanup"}


def phase_of(job: Job) -> str | None:
    """The phase that a limit of the job may be about now, by its name in `phase_limits`."""
    state = State(job["state"])
    return job["phase"] if state == State.DISPATCHING else _PHASE_OF.get(state)


def limit_of(job: Job) -> float | None:
    """Seconds that the job's own limits give to the phase that it is in."""
    limits: dict[str, Any] = job["phase_limits_s"]
    phase = phase_of(job)
    return None if phase is None or limits.get(phase) is None else float(limits[phase])


def passed(job: Job, what: str) -> Deadline:
    """What becomes of a job that has passed its deadline or the limit of its phase."""
    state = State(job["state"])
    if what == DEADLINE:
        return DEADLINES[state]
    then = {State.QUEUED: State.TIMED_OUT, State.CLEANUP: State.LOST}.get(state, State.FAILED_SETUP)
    return Deadline(limit_of(job) or 0.0, "entered", then, Reason.PHASE_LIMIT)
