"""Whether an attempt that has ended is followed by another one, and when. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monkey.states import Reason, State

DEFAULT_RETRY_ON: tuple[int | str, ...] = ("failed", "preempted", "lost")
LONGEST_DELAY_S = 600.0
# A lost host holds a job up this long: long enough for a restart of the core or of a router in between.
DEFAULT_LEASE_S = 900.0
# The end of a tree takes its grace; then the slack for a busy machine, and for clocks that run at other speeds.
LEASE_SLACK_S = 5.0
_LEASE_DRIFT = 0.02

_WORDS: dict[str, str] = {
    State.FAILED: "failed",
    State.FAILED_SETUP: "setup",
    State.TIMED_OUT: "timed_out",
    State.LOST: "lost",
}


@dataclass(frozen=True)
class Retry:
    """The next attempt: `number` of `of` retries, `delay_s` from now, because of `why`."""

    number: int
    of: int
    delay_s: float
    why: str


def lease_s(job: Mapping[str, Any]) -> float | None:
    """Seconds of the lease of a job's attempts; None when no other attempt may ever follow a lost one."""
    given = job["lease_s"]
    if given is not None:
        return float(given)
    return DEFAULT_LEASE_S if job["retries"] and "lost" in _retry_on(job) else None


def surely_over_s(lease: float, grace_s: float) -> float:
    """Seconds after the start of a lease when nothing of the attempt can run any more, whatever its host does."""
    return lease * (1 + _LEASE_DRIFT) + grace_s + LEASE_SLACK_S


def verdict(job: Mapping[str, Any], outcome: Mapping[str, Any]) -> Retry | str:
    """What follows an attempt that ended.

    Args:
        job: its record, with `exit_code` of the attempt, `retries`, `retry_on`, `retry_delay_s`, `retries_used`.
        outcome: `state` and `reason` of the attempt's end.

    Returns:
        the next attempt, or a sentence that says why there is none ("" where nobody would expect one).
    """
    state = State(outcome["state"])
    if state in {State.SUCCEEDED, State.CANCELLED} or not job["retries"]:
        return ""
    if job["cancel_requested"]:
        return "not tried again: it was to be cancelled"
    what = _what(state, str(outcome["reason"]))
    code = job["exit_code"]
    said = f"{what} with exit code {code}" if what == "failed" and code is not None else what.replace("_", " ")
    wanted = _retry_on(job)
    if what not in wanted and not (what == "failed" and code in wanted):
        return f"not tried again: retry_on ({', '.join(map(str, wanted))}) does not name what happened ({said})"
    used, most = int(job["retries_used"]), int(job["retries"])
    if used >= most:
        return f"not tried again: all {most} retries are used up"
    delay_s = min(float(job["retry_delay_s"]) * 2**used, LONGEST_DELAY_S)
    return Retry(used + 1, most, delay_s, said)


def _retry_on(job: Mapping[str, Any]) -> tuple[int | str, ...]:
    return DEFAULT_RETRY_ON if job["retry_on"] is None else tuple(job["retry_on"])


def _what(state: State, reason: str) -> str:
    return "preempted" if reason == Reason.PREEMPTED else _WORDS[state]
