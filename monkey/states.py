"""A job's states, the changes that are allowed, their reasons and deadlines, and the words of filters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from monkey.errors import IllegalChange, UsageProblem
from monkey.names import did_you_mean


class State(StrEnum):
    """Where a job is on its way (DESIGN, States)."""

    QUEUED = "QUEUED"
    DISPATCHING = "DISPATCHING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    CLEANUP = "CLEANUP"
    RECOVERING = "RECOVERING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    FAILED_SETUP = "FAILED_SETUP"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    LOST = "LOST"


class Phase(StrEnum):
    """What DISPATCHING is busy with."""

    MACHINE = "machine"
    INSTALLS = "installs"
    SETUP = "setup"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.FAILED_SETUP, State.CANCELLED, State.TIMED_OUT, State.LOST})
LIVE = frozenset(State) - TERMINAL

ALLOWED: dict[State, frozenset[State]] = {
    # FAILED_SETUP: nothing can ever run it (its provider was removed). TIMED_OUT: its own limit for waiting.
    State.QUEUED: frozenset({State.DISPATCHING, State.CANCELLED, State.FAILED_SETUP, State.TIMED_OUT}),
    # Back to QUEUED only while no host can have it; CLEANUP also without RUNNING (setup failed, cancelled before).
    State.DISPATCHING: frozenset(
        {
            State.QUEUED,
            State.RUNNING,
            State.CLEANUP,
            State.RECOVERING,
            State.FAILED_SETUP,
            State.CANCELLED,
            State.LOST,
        }
    ),
    # Straight to LOST: its host is gone, there is nothing to clean up.
    State.RUNNING: frozenset({State.PAUSED, State.CLEANUP, State.RECOVERING, State.LOST}),
    State.PAUSED: frozenset({State.RUNNING, State.CLEANUP, State.RECOVERING, State.LOST}),
    State.CLEANUP: TERMINAL | {State.RECOVERING},
    State.RECOVERING: frozenset({State.QUEUED, State.CANCELLED, State.LOST}),
    **{state: frozenset() for state in TERMINAL},
}
"""The one table of allowed changes; whatever is not listed is refused. A final state is left by a reset alone."""


def check_change(old: State | str, new: State | str, *, reset: bool = False) -> State:
    """Return `new` as a State; raise IllegalChange when the table does not allow it.

    A state that is not final may be "changed" to itself: a new reason or phase. `reset`: the user puts a job that has
    ended back into the queue.
    """
    before, after = State(old), State(new)
    if after in ALLOWED[before] or (before == after and before not in TERMINAL):
        return after
    if reset and before in TERMINAL and after == State.QUEUED:
        return after
    if before in TERMINAL:
        raise IllegalChange(f"{before} is final, it does not become {after}")
    allowed = ", ".join(sorted(ALLOWED[before]))
    raise IllegalChange(f"{before} does not become {after}, only one of {allowed}")


class Reason(StrEnum):
    """Why a job is in its state: the code in `reason`."""

    # Of the core, before the command runs.
    SUBMITTED = "SUBMITTED"
    RERUN = "RERUN"
    WAITING_FOR_SLOT = "WAITING_FOR_SLOT"
    WAITING_FOR_HOST = "WAITING_FOR_HOST"
    NO_HOST_FITS = "NO_HOST_FITS"
    WAITING_FOR_QUEUE = "WAITING_FOR_QUEUE"
    WAITING_FOR_TURN = "WAITING_FOR_TURN"
    WAITING_FOR_DEPENDENCY = "WAITING_FOR_DEPENDENCY"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"
    RESET = "RESET"
    RELEASED = "RELEASED"
    PROVIDER_REMOVED = "PROVIDER_REMOVED"
    DISPATCHED = "DISPATCHED"
    PREPARING_MACHINE = "PREPARING_MACHINE"
    SENDING = "SENDING"
    INSTALLING = "INSTALLING"
    BUILDING_ENVIRONMENT = "BUILDING_ENVIRONMENT"
    ACCEPTED = "ACCEPTED"
    SETTING_UP = "SETTING_UP"
    HOST_UNREACHABLE = "HOST_UNREACHABLE"
    HOST_KEY_CHANGED = "HOST_KEY_CHANGED"
    HOST_REFUSED = "HOST_REFUSED"
    NO_PYTHON = "NO_PYTHON"
    HOST_DISK_FULL = "HOST_DISK_FULL"
    CLIENT_FAILED = "CLIENT_FAILED"
    CODE_FAILED = "CODE_FAILED"
    INSTALL_FAILED = "INSTALL_FAILED"
    ENVIRONMENT_FAILED = "ENVIRONMENT_FAILED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    # Of the core, while it runs and after.
    STARTED = "STARTED"
    RESUMED = "RESUMED"
    PAUSED_BY_USER = "PAUSED_BY_USER"
    CANCELLED_BY_USER = "CANCELLED_BY_USER"
    COLLECTING = "COLLECTING"
    COLLECT_FAILED = "COLLECT_FAILED"
    HOST_LOST = "HOST_LOST"
    PREEMPTED = "PREEMPTED"
    RETRYING = "RETRYING"
    DEADLINE = "DEADLINE"
    PHASE_LIMIT = "PHASE_LIMIT"
    # Of the client (docs/interfaces.md, Events).
    EXITED = "EXITED"
    NONZERO_EXIT = "NONZERO_EXIT"
    SIGNALLED = "SIGNALLED"
    SETUP_FAILED = "SETUP_FAILED"
    COMMAND_NOT_FOUND = "COMMAND_NOT_FOUND"
    CANCELLED = "CANCELLED"
    TIME_LIMIT = "TIME_LIMIT"
    LEASE_ENDED = "LEASE_ENDED"
    DISK_FULL = "DISK_FULL"
    EXIT_UNKNOWN = "EXIT_UNKNOWN"


CLIENT_REASONS = frozenset(
    {
        Reason.EXITED,
        Reason.NONZERO_EXIT,
        Reason.SIGNALLED,
        Reason.SETUP_FAILED,
        Reason.COMMAND_NOT_FOUND,
        Reason.CANCELLED,
        Reason.TIME_LIMIT,
        Reason.LEASE_ENDED,
        Reason.DISK_FULL,
        Reason.EXIT_UNKNOWN,
    }
)

SENTENCES: dict[Reason, str] = {
    Reason.SUBMITTED: "Accepted; `monkey info job {juid}` shows where it waits.",
    Reason.RERUN: "Made again from an earlier job; `monkey info job {juid}` shows where it waits.",
    Reason.WAITING_FOR_SLOT: "Every slot of the provider is taken; `monkey list jobs --running` shows by which jobs.",
    Reason.WAITING_FOR_HOST: "No host of the provider answers now; try `monkey provider check {provider}`.",
    Reason.NO_HOST_FITS: "No host has the CPUs, GPUs or memory asked for; see `monkey info provider {provider}`.",
    Reason.WAITING_FOR_QUEUE: "As many jobs of its queue as may be out are out; see `monkey explain {juid}`.",
    Reason.WAITING_FOR_TURN: "A job ahead of it can use the same hosts and goes first; see `monkey explain {juid}`.",
    Reason.WAITING_FOR_DEPENDENCY: "It waits for other jobs; `monkey explain {juid}` shows for which.",
    Reason.DEPENDENCY_FAILED: "A job that it needs did not succeed; rerun that one, then `monkey job reset {juid}`.",
    Reason.RESET: "Put back into the queue by you; `monkey explain {juid}` shows where it waits.",
    Reason.RELEASED: "Back in the queue; `monkey explain {juid}` shows where it waits.",
    Reason.PROVIDER_REMOVED: "Its provider {provider} is gone; `monkey list providers` shows what there is.",
    Reason.DISPATCHED: "A playbook is bringing it to its host; follow it with `monkey logs -f {juid}`.",
    Reason.PREPARING_MACHINE: "Its machine is being made ready; follow it with `monkey logs -f {juid}`.",
    Reason.SENDING: "Code and data are being sent; follow it with `monkey logs -f {juid}`.",
    Reason.INSTALLING: "The roles under `install` are running; follow it with `monkey logs -f {juid}`.",
    Reason.BUILDING_ENVIRONMENT: "Its environment is being built; follow it with `monkey logs -f {juid}`.",
    Reason.ACCEPTED: "The host has it and starts it when a slot is free; see `monkey info job {juid}`.",
    Reason.SETTING_UP: "Its setup lines are running; follow them with `monkey logs -f {juid}`.",
    Reason.HOST_UNREACHABLE: "The host does not answer; the job is kept. Try `monkey provider check {provider}`.",
    Reason.HOST_KEY_CHANGED: "The host shows another key than the pinned one: find out why, "
    "then remove and add provider {provider} again.",
    Reason.HOST_REFUSED: "The host refused the login; look at user and key with `monkey provider check {provider}`.",
    Reason.NO_PYTHON: "The host has no Python 3.8 or newer; install one, then `monkey provider check {provider}`.",
    Reason.HOST_DISK_FULL: "The host's disk is full; `monkey info provider {provider}` shows what is left.",
    Reason.CLIENT_FAILED: "Monkey's client could not be installed or started; see `monkey info job {juid}`.",
    Reason.CODE_FAILED: "Code or data could not be brought to the host; see `monkey info job {juid}`.",
    Reason.INSTALL_FAILED: "A role under `install` failed; its last lines are in `monkey logs {juid}`.",
    Reason.ENVIRONMENT_FAILED: "The environment could not be built; the tool's last lines are in `monkey logs {juid}`.",
    Reason.LAUNCH_FAILED: "The host did not take the job; see `monkey info job {juid}`.",
    Reason.STARTED: "The command is running; follow it with `monkey logs -f {juid}`.",
    Reason.RESUMED: "The command is running again; follow it with `monkey logs -f {juid}`.",
    Reason.PAUSED_BY_USER: "Stopped by you; `monkey job resume {juid}` lets it go on.",
    Reason.CANCELLED_BY_USER: "Cancelled by you; `monkey job rerun {juid}` runs it again.",
    Reason.COLLECTING: "The command has ended, its results are being brought back; see `monkey info job {juid}`.",
    Reason.COLLECT_FAILED: "The command has ended, but its results could not be brought back; "
    "try `monkey output {juid}`.",
    Reason.HOST_LOST: "Its host is gone and nobody can say how it ended; the last words are in `monkey logs {juid}`.",
    Reason.PREEMPTED: "The cloud took its machine away; see the attempts in `monkey info job {juid}`.",
    Reason.RETRYING: "It will be tried again; see the attempts in `monkey info job {juid}`.",
    Reason.DEADLINE: "Nothing happened for too long; `monkey info job {juid}` shows where it stood.",
    Reason.PHASE_LIMIT: "It took longer than its `phase_limits` allow; see `monkey explain {juid}`.",
    Reason.EXITED: "The command ended with exit code 0; fetch its results with `monkey output {juid}`.",
    Reason.NONZERO_EXIT: "The command ended with an error; its last lines are in `monkey logs {juid}`.",
    Reason.SIGNALLED: "The command was ended by a signal; its last lines are in `monkey logs {juid}`.",
    Reason.SETUP_FAILED: "A setup line failed; its last lines are in `monkey logs {juid}`.",
    Reason.COMMAND_NOT_FOUND: "The command is not there or not executable; see `monkey logs {juid}`.",
    Reason.CANCELLED: "It was cancelled; `monkey job rerun {juid}` runs it again.",
    Reason.TIME_LIMIT: "It reached its time limit; raise `time_limit` and try `monkey job rerun {juid}`.",
    Reason.LEASE_ENDED: "Its host heard nothing of the main node for too long and ended it; see `monkey logs {juid}`.",
    Reason.DISK_FULL: "The disk of its host is full; `monkey info provider {provider}` shows what is left.",
    Reason.EXIT_UNKNOWN: "It ended while nobody could see how; its last lines are in `monkey logs {juid}`.",
}
"""For each code the sentence that stands when there is nothing more exact to say; it says where to look next."""


def sentence(reason: Reason | str, juid: str, provider: str = "NAME") -> str:
    """The default sentence of a reason code. Raises ValueError for an unknown code."""
    return SENTENCES[Reason(reason)].replace("{juid}", juid).replace("{provider}", provider)


@dataclass(frozen=True)
class Deadline:
    """How long a job may stay in a state, and what becomes of it then.

    `counts_from`: `entered`, when the state began; `last_heard`, the last sign of life (an event, a playbook's
    progress, the host's heartbeat): unreachable is not failed, so these are long.
    """

    seconds: float
    counts_from: Literal["entered", "last_heard"]
    then: State
    reason: Reason


_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S

DEADLINES: dict[State, Deadline] = {
    # Who waited a month for a machine has forgotten the job.
    State.QUEUED: Deadline(30 * _DAY_S, "entered", State.CANCELLED, Reason.DEADLINE),
    # The longest honest step without a word is a large image or conda environment: well under six hours.
    State.DISPATCHING: Deadline(6 * _HOUR_S, "last_heard", State.FAILED_SETUP, Reason.DEADLINE),
    # The time limit of the job itself is the client's business; this is for a host that never comes back.
    State.RUNNING: Deadline(7 * _DAY_S, "last_heard", State.LOST, Reason.HOST_LOST),
    # CLEANUP, and from there CANCELLED: the stopped processes must be ended first.
    State.PAUSED: Deadline(30 * _DAY_S, "entered", State.CLEANUP, Reason.DEADLINE),
    # Results of many gigabytes over a slow line; afterwards the state that the command reached holds.
    State.CLEANUP: Deadline(24 * _HOUR_S, "last_heard", State.LOST, Reason.COLLECT_FAILED),
    # The longest pause before a retry is ten minutes; a day leaves room for a clock that was set anew.
    State.RECOVERING: Deadline(1 * _DAY_S, "entered", State.LOST, Reason.DEADLINE),
}
"""Every state that is not final has one (KubeRay #3903). CLEANUP ends in the state that the attempt's own end calls
for; `then` holds only when that end is unknown."""


_THEIRS: dict[str, State] = {
    # Slurm
    "PENDING": State.QUEUED,
    "CONFIGURING": State.DISPATCHING,
    "SUSPENDED": State.PAUSED,
    "COMPLETING": State.CLEANUP,
    "COMPLETED": State.SUCCEEDED,
    "TIMEOUT": State.TIMED_OUT,
    "PREEMPTED": State.RECOVERING,
    "NODE_FAIL": State.LOST,
    # SkyPilot (PENDING as Slurm's)
    "STARTING": State.DISPATCHING,
    "SETTING_UP": State.DISPATCHING,
    # Cloudmesh (timeout as Slurm's)
    "UNDEFINED": State.QUEUED,
    "READY": State.QUEUED,
    "SUBMITTED": State.DISPATCHING,
    "RUN": State.DISPATCHING,
    "START": State.RUNNING,
    "END": State.SUCCEEDED,
    "DONE": State.SUCCEEDED,
    "KILL": State.CANCELLED,
    "FAIL_START": State.FAILED_SETUP,
    "CRASH": State.LOST,
}

FILTER_WORDS: dict[str, frozenset[State]] = {
    **{state.value: frozenset({state}) for state in State},
    **{word: frozenset({state}) for word, state in _THEIRS.items()},
    "FINISHED": TERMINAL,
}
"""Every word that a filter accepts, upper case."""


def parse_filter(text: str, field: str = "--status") -> frozenset[State]:
    """The states that a filter like `running,COMPLETED,finished` means; case does not count.

    Raises UsageProblem naming `field`, the word at fault and the nearest known one.
    """
    found: set[State] = set()
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageProblem(field, "expected states, comma separated, such as running,finished")
    for word in words:
        states = FILTER_WORDS.get(word.upper().replace("-", "_"))
        if states is None:
            hint = did_you_mean(word, [known.lower() for known in FILTER_WORDS])
            expected = "" if hint else f"; expected one of {', '.join(s.lower() for s in State)}, finished"
            raise UsageProblem(field, f"unknown state {word!r}{hint}{expected}")
        found |= states
    return frozenset(found)
