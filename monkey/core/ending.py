"""The end of an attempt: the job ends with it, or goes back to the queue for another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from monkey import states
from monkey.jobs import Job, JobBook, iso, now
from monkey.retrying import Retry, verdict
from monkey.states import Reason, State

Outcome = dict[str, Any]
"""How an attempt ended: `state`, `reason`, `message` (None: the reason's own sentence)."""

# What the attempt left in the record of the job, and the next one begins without.
_FRESH: dict[str, Any] = {
    "handed": False,
    "phase": None,
    "host": None,
    "exit_code": None,
    "started_at": None,
    "finished_at": None,
    "outcome": None,
    "not_before": None,
}


def conclude(jobs: JobBook, juid: str, outcome: Outcome | None = None, note: str = "", wait_s: float = 0.0) -> Job:
    """Record that the current attempt is over.

    Args:
        jobs: the jobs.
        juid: the job, in DISPATCHING, RUNNING, PAUSED or CLEANUP.
        outcome: how it ended; None: as its record in CLEANUP says.
        note: a further sentence.
        wait_s: the next attempt may not begin before these seconds have passed.
    """
    job = jobs.get(juid)
    ended = outcome or job["outcome"] or {"state": State.LOST, "reason": Reason.EXIT_UNKNOWN, "message": None}
    said = ended["message"] or states.sentence(ended["reason"], juid, job["provider"])
    message = f"{said} {note}".strip()
    next_one = verdict(job, ended)
    if job["attempts"]:
        last = job["attempts"][-1]
        if isinstance(next_one, Retry):
            delay_s = max(next_one.delay_s, wait_s)
            last["retry"] = {**asdict(next_one), "delay_s": delay_s}
            kept = {name: job[name] for name in ("exit_code", "started_at")}
            last.update(state=str(ended["state"]), reason=str(ended["reason"]), message=message, over=True, **kept)
            last["finished_at"] = job["finished_at"] or iso(now())
            return jobs.change(
                juid,
                State.RECOVERING,
                Reason.RETRYING,
                f"{_without_stop(message)}; tried again in {delay_s:g} s ({next_one.number} of {next_one.of})",
                attempts=job["attempts"],
                retries_used=next_one.number,
                not_before=iso(now().timestamp() + delay_s),
                phase=None,
            )
        if next_one:
            last["no_retry"] = next_one
    return jobs.change(
        juid, State(ended["state"]), str(ended["reason"]), message, phase=None, attempts=job["attempts"]
    )


def requeue(jobs: JobBook, juid: str, reason: Reason, message: str | None = None, **fields: Any) -> Job:
    """Put a job back into the queue, without what its last attempt left in the record."""
    return jobs.change(juid, State.QUEUED, reason, message, **{**_FRESH, **fields})


def never_there(jobs: JobBook, juid: str, why: str) -> Job:
    """Put a job back into the queue whose attempt surely never got to its host; that attempt number is spent."""
    job = jobs.get(juid)
    job["attempts"][-1].update(state=str(State.QUEUED), reason=str(Reason.HOST_UNREACHABLE), message=why, over=True)
    return requeue(jobs, juid, Reason.HOST_UNREACHABLE, f"{why}; it goes to another host", attempts=job["attempts"])


def _without_stop(sentence: str) -> str:
    return sentence[:-1] if sentence.endswith(".") else sentence
