"""Every state that is not final has a deadline (KubeRay #3903): which jobs have passed theirs. A pure function."""

from __future__ import annotations

import datetime
from typing import Any

from monkey.jobs import Job
from monkey.states import DEADLINES, TERMINAL, Deadline, State


def entered_at(job: Job) -> float:
    """When the job's state began, in seconds since the epoch."""
    began: dict[str, Any] = job["history"][-1]
    for entry in reversed(job["history"]):
        if entry["state"] != job["state"]:
            break
        began = entry
    return datetime.datetime.fromisoformat(began["at"]).timestamp()


def overdue(job: Job, now_s: float, last_heard_s: float) -> Deadline | None:
    """The deadline that a job has passed, or None.

    Args:
        job: its record.
        now_s: the time, in seconds since the epoch.
        last_heard_s: the last sign of life of its host, or the start of the core when that is later.
    """
    state = State(job["state"])
    if state in TERMINAL:
        return None
    deadline = DEADLINES[state]
    since = entered_at(job)
    if deadline.counts_from == "last_heard":
        since = max(since, last_heard_s)
    return deadline if now_s - since > deadline.seconds else None
