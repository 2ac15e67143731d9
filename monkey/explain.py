"""Why a job is where it is, in sentences, from what its record holds. Nothing is looked up and nothing is guessed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monkey.jobs import Job, iso
from monkey.scheduler import Waiting
from monkey.states import TERMINAL, Reason, State

_OTHERS_SHOWN = 4

# What was going on when an attempt failed before its command ran.
_SETUP_STEPS: dict[str, str] = {
    Reason.CLIENT_FAILED: "while Monkey's client was brought to the host",
    Reason.CODE_FAILED: "while code and data were brought to the host",
    Reason.INSTALL_FAILED: "in a role under `install`",
    Reason.ENVIRONMENT_FAILED: "while its environment was built",
    Reason.LAUNCH_FAILED: "when the host was to take it over",
    Reason.SETUP_FAILED: "in one of its setup lines",
    Reason.COMMAND_NOT_FOUND: "because its command was not found",
}
_FAILED = frozenset({State.FAILED, State.FAILED_SETUP, State.TIMED_OUT, State.LOST})
# Reasons that say nothing beyond what the sentences about attempts say.
_STEPS = frozenset(
    {
        Reason.PREPARING_MACHINE,
        Reason.SENDING,
        Reason.INSTALLING,
        Reason.BUILDING_ENVIRONMENT,
        Reason.ACCEPTED,
        Reason.SETTING_UP,
        Reason.COLLECTING,
    }
)
_BACK = frozenset({Reason.RELEASED, Reason.SUBMITTED})
_BY_MONKEY = frozenset({Reason.DEADLINE, Reason.PHASE_LIMIT})


@dataclass(frozen=True)
class Sentence:
    """One thing that happened or holds. `at`: when, ISO 8601 by the main node's clock; None: it has no time."""

    at: str | None
    text: str


def explain(
    job: Job,
    *,
    waiting: Waiting | None,
    dependencies: Sequence[Mapping[str, Any]],
    now: datetime.datetime,
) -> list[Sentence]:
    """Tell a job's story, oldest first; then what holds now, and last where to look next.

    Args:
        job: its record.
        waiting: why the scheduler does not send it out now, or None.
        dependencies: what it depends on: `juid`, `nickname`, `state` (None: not on record), `when` (success or end).
        now: the time, for pauses.
    """
    story = _Story(job)
    present = [] if State(job["state"]) in TERMINAL else _present(job, waiting, dependencies, now)
    return [*story.tell(), *(Sentence(iso(now), text) for text in present), _next(job, waiting, dependencies)]


class _Story:
    """What has happened, in the order of the record: hosts have clocks of their own, so times are not compared."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._attempts: dict[int, Mapping[str, Any]] = {entry["attempt"]: entry for entry in job["attempts"]}
        self._begun: set[int] = set()
        self._started: set[int] = set()
        self._ended: set[int] = set()
        self._told: list[Sentence] = []
        self._repeated: dict[tuple[int, str], tuple[int, int]] = {}

    def tell(self) -> list[Sentence]:
        self._submitted()
        before: Mapping[str, Any] = {"state": None, "reason": None}
        for entry in self._job["history"]:
            # The history keeps its newest entries only; attempts are kept whole.
            for number in [n for n in self._attempts if n < entry["attempt"] and n not in self._ended]:
                self._begin(number, None)
                self._end(number, None, self._attempts[number])
            self._entry(entry, before)
            before = entry
        return self._told

    def _say(self, at: str | None, text: str) -> None:
        self._told.append(Sentence(at, text))

    def _say_once(self, at: str | None, number: int, text: str) -> None:
        """A host that comes and goes says the same again and again: count it."""
        place, times = self._repeated.get((number, text), (len(self._told), 0))
        if times:
            self._told[place] = Sentence(self._told[place].at, f"{text} So {times + 1} times, last at {at}.")
        else:
            self._say(at, text)
        self._repeated[number, text] = (place, times + 1)

    def _submitted(self) -> None:
        job = self._job
        asks = [f"{job['resources']['cpus']:g} CPU"]
        if job["resources"]["gpus"]:
            asks.append(f"{job['resources']['gpus']} GPU")
        if job["resources"]["memory_mb"]:
            asks.append(f"{job['resources']['memory_mb']} MB of memory")
        where = (
            f"host {job['instance']} of provider {job['provider']}"
            if job["instance"]
            else f"provider {job['provider']}"
        )
        again = f" It runs job {job['rerun_of']} again." if job.get("rerun_of") else ""
        self._say(
            job["submitted_at"],
            f"Submitted for {where} with priority {job['priority']}; it asks for {', '.join(asks)}.{again}",
        )

    def _entry(self, entry: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        at, number, state, reason = entry["at"], entry["attempt"], State(entry["state"]), entry["reason"]
        under_way = number in self._attempts and number not in self._ended
        if under_way and state != State.QUEUED:
            self._begin(number, at)
        if under_way and (state in TERMINAL or reason == Reason.RETRYING):
            self._end(number, at, self._ending(number, entry))
        elif under_way and state == State.QUEUED:
            self._ended.add(number)
            self._say(at, f"Attempt {number} is given up, it went back into the queue: {_stop(entry['message'])}")
        elif state in TERMINAL:
            self._over_unsent(at, state, entry)
        elif reason == Reason.STARTED:
            if number not in self._started:
                self._started.add(number)
                self._say(at, f"Its command started on host {entry['host']}.")
            elif before["reason"] == Reason.HOST_UNREACHABLE:
                self._say_once(at, number, f"Host {entry['host']} answers again; the job had gone on.")
        elif reason == Reason.HOST_UNREACHABLE:
            self._say_once(at, number, f"Host {entry['host']} does not answer: {_stop(entry['message'])}")
        else:
            self._step(at, state, entry, before)

    def _step(self, at: str, state: State, entry: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        reason = entry["reason"]
        if reason == Reason.PAUSED_BY_USER:
            where = "in the queue" if state == State.QUEUED else f"on host {entry['host']}; its processes stand still"
            self._say(at, f"You paused it {where}.")
        elif reason == Reason.RESUMED or (before["reason"] == Reason.PAUSED_BY_USER and reason in _BACK):
            self._say(at, "You let it go on.")
        elif reason == Reason.RELEASED and before["state"] == State.RECOVERING:
            self._say(at, "The pause was over: back in the queue for the next attempt.")
        elif reason == Reason.RESET:
            self._say(at, "You put it back into the queue (reset); its retries are counted anew.")
        elif reason in _BY_MONKEY:
            self._say(at, f"Monkey asked to end it: {_stop(entry['message'])}")
        elif reason not in _STEPS and reason not in {Reason.SUBMITTED, Reason.RERUN, Reason.DISPATCHED}:
            self._say_once(at, entry["attempt"], _stop(entry["message"]))

    def _over_unsent(self, at: str, state: State, entry: Mapping[str, Any]) -> None:
        """It ended while no attempt was under way."""
        if entry["reason"] == Reason.CANCELLED_BY_USER:
            self._say(at, "You cancelled it while it waited.")
        else:
            by = "Monkey ended it" if state == State.CANCELLED else f"It ended {state}"
            self._say(at, f"{by} while it waited ({entry['reason']}): {_stop(entry['message'])}")

    def _begin(self, number: int, at: str | None) -> None:
        if number in self._begun:
            return
        self._begun.add(number)
        attempt = self._attempts[number]
        placement = attempt.get("placement")
        text = f"Attempt {number} went to host {attempt['host']}"
        if not placement:
            self._say(at or attempt.get("dispatched_at"), f"{text}; why that one was not recorded.")
            return
        text += f" (policy {placement['policy']}): {_stop(placement['why'])}"
        others = [f"{name} ({why})" for name, why in placement["others"]]
        if others:
            more = f" and {len(others) - _OTHERS_SHOWN} more" if len(others) > _OTHERS_SHOWN else ""
            text += f" Also considered: {', '.join(others[:_OTHERS_SHOWN])}{more}."
        if placement["behind"]:
            ahead = placement["behind"]
            text += f" It passed job {ahead['juid']}, which could not go then: {_stop(ahead['message'])}"
        self._say(at or attempt.get("dispatched_at"), text)

    def _ending(self, number: int, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        attempt = self._attempts[number]
        return attempt if attempt.get("over") else {**attempt, **{k: entry[k] for k in ("state", "reason", "message")}}

    def _end(self, number: int, at: str | None, ended: Mapping[str, Any]) -> None:
        self._ended.add(number)
        at = at or ended.get("finished_at")
        state, reason, code = State(ended["state"]), str(ended["reason"]), ended.get("exit_code")
        message = _stop(ended.get("message") or reason)
        host, step = ended["host"], _SETUP_STEPS.get(reason)
        if state == State.SUCCEEDED:
            self._say(at, f"Attempt {number} succeeded on host {host}: its command ended with exit code 0.")
        elif state == State.CANCELLED and reason in (Reason.CANCELLED_BY_USER, Reason.CANCELLED):
            who = "you asked to cancel it" if reason == Reason.CANCELLED_BY_USER else "it was cancelled"
            self._say(at, f"Attempt {number} ended on host {host} because {who}.")
        elif state == State.FAILED_SETUP:
            when = step or "before its command ran"
            self._say(
                at,
                f"Attempt {number} failed in setup on host {host}, {when} ({reason}): {message} "
                f"Its last lines are in `{self._logs(number)}`.",
            )
        elif state == State.QUEUED:
            self._say(at, f"Attempt {number} never got to host {host}: {message}")
        else:
            exit_code = f" with exit code {code}" if code is not None else ""
            self._say(at, f"Attempt {number} ended {state} on host {host}{exit_code} ({reason}): {message}")
        if state in _FAILED:
            self._after(number, at, ended)

    def _after(self, number: int, at: str | None, ended: Mapping[str, Any]) -> None:
        """Why another attempt follows a failed one, or why none does."""
        retry = ended.get("retry")
        if retry:
            text = f"It is restarted, because attempt {number} {_why(retry['why'])} and `retry_on` names that: "
            self._say(at, f"{text}retry {retry['number']} of {retry['of']}, after a pause of {retry['delay_s']:g} s.")
        elif ended.get("no_retry"):
            self._say(at, f"It was {_stop(ended['no_retry'])}")
        elif not self._job.get("retries"):
            self._say(at, "It was not tried again: it was submitted without retries.")

    def _logs(self, number: int) -> str:
        return f"monkey logs {self._job['juid']}" + ("" if number == self._job["attempt"] else f" --attempt {number}")


def _present(
    job: Job, waiting: Waiting | None, dependencies: Sequence[Mapping[str, Any]], now: datetime.datetime
) -> list[str]:
    """What holds it now, or what it is busy with."""
    state, host = State(job["state"]), job["host"]
    found: list[str] = []
    if state == State.QUEUED:
        if job["held"]:
            found.append(f"It waits now because you paused it; `monkey job resume {job['juid']}` lets it go on.")
        found += [_dependency(item) for item in dependencies if _is_open(item)]
        if not found and waiting:
            found.append(f"It waits now ({waiting.reason}): {_stop(waiting.message)}")
        if not found:
            found.append("It waits in the queue; nothing is known to hold it, it goes out with the next step.")
    elif state == State.RECOVERING:
        found.append(_pause(job, now))
    elif state == State.RUNNING:
        found.append(f"It runs on host {host}.")
    elif state == State.PAUSED:
        found.append(f"It stands still on host {host} because you paused it.")
    elif state == State.DISPATCHING:
        found.append(f"It is on its way to host {host} ({job['reason']}): {_stop(job['message'])}")
    else:
        found.append(
            f"Its command has ended, host {host} is being tidied up ({job['reason']}): {_stop(job['message'])}"
        )
    if job["cancel_requested"] and state != State.QUEUED:
        by_monkey = any(e["reason"] in _BY_MONKEY for e in job["history"] if e["attempt"] == job["attempt"])
        who = "Monkey asked to end it because a time limit was reached" if by_monkey else "You asked to cancel it"
        found.append(f"{who}; that is not done yet.")
    return found


def _is_open(item: Mapping[str, Any]) -> bool:
    state = item["state"]
    if state is None or State(state) not in TERMINAL:
        return True
    return bool(item["when"] == "success") and State(state) != State.SUCCEEDED


def _dependency(item: Mapping[str, Any]) -> str:
    named = f"job {item['juid']}" + (f" ({item['nickname']})" if item["nickname"] else "")
    if item["state"] is None:
        return f"It can never start: {named}, which it depends on, is not on record any more."
    if State(item["state"]) in TERMINAL:
        return f"It can never start: {named} had to succeed and ended {item['state']}."
    must = "succeed" if item["when"] == "success" else "end"
    return f"It waits now for {named} to {must}, which is {item['state']}."


def _pause(job: Job, now: datetime.datetime) -> str:
    retry = (job["attempts"][-1].get("retry") if job["attempts"] else None) or {}
    which = f"retry {retry['number']} of {retry['of']}" if retry else "its next attempt"
    until = job.get("not_before")
    if not until:
        return f"It waits now for {which}."
    left_s = (datetime.datetime.fromisoformat(until) - now).total_seconds()
    if left_s <= 0:
        return f"The pause before {which} ended at {until}; it goes back into the queue with the next step."
    return f"It waits now until {until} ({left_s:.0f} s from now), the pause before {which}."


def _next(job: Job, waiting: Waiting | None, dependencies: Sequence[Mapping[str, Any]]) -> Sentence:
    """Where to look next."""
    juid, provider, state = job["juid"], job["provider"], State(job["state"])
    first = next((item["juid"] for item in dependencies if _is_open(item)), None)
    reason = waiting.reason if waiting else job["reason"]
    if state == State.QUEUED and job["held"]:
        text = f"`monkey job resume {juid}` lets it go on."
    elif state == State.QUEUED and first:
        text = f"`monkey explain {first}` tells about the job that it waits for."
    elif state == State.QUEUED and reason in {"WAITING_FOR_HOST", "NO_HOST_FITS"}:
        text = f"`monkey info provider {provider}` shows its hosts; `monkey provider check {provider}` looks at them."
    elif state == State.QUEUED:
        text = "`monkey list jobs --running` shows which jobs are out; `monkey scheduler info` shows hosts and queue."
    elif state == State.SUCCEEDED:
        text = f"`monkey output {juid}` fetches its results, `monkey logs {juid}` shows what it wrote."
    elif reason == Reason.DEPENDENCY_FAILED and first:
        text = f"`monkey explain {first}` tells why that one failed; then `monkey job reset {juid}`."
    elif state == State.CANCELLED:
        text = f"`monkey job reset {juid}` puts it back into the queue."
    elif state in TERMINAL:
        text = f"`monkey logs {juid}` shows its last lines; `monkey job reset {juid}` tries it again."
    elif state in {State.DISPATCHING, State.RUNNING}:
        text = f"`monkey logs -f {juid}` follows it."
    elif state == State.PAUSED:
        text = f"`monkey job resume {juid}` lets it go on."
    else:
        text = f"`monkey events {juid} --follow` shows each change as it comes."
    return Sentence(None, f"Look next: {text}")


def _why(words: str) -> str:
    """The word of `retry_on` as a verb: `lost` becomes `was lost`."""
    verbs = {"lost": "was lost", "preempted": "was preempted", "setup": "failed in setup"}
    return verbs.get(words, words)


def _stop(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
