"""The table of states, reasons, deadlines, and the words of filters."""

import itertools

import pytest

from monkey.errors import IllegalChange, UsageProblem
from monkey.states import (
    ALLOWED,
    CLIENT_REASONS,
    DEADLINES,
    LIVE,
    SENTENCES,
    TERMINAL,
    Reason,
    State,
    check_change,
    parse_filter,
    sentence,
)

S = State


@pytest.mark.parametrize(
    "way",
    [
        (S.QUEUED, S.DISPATCHING, S.RUNNING, S.PAUSED, S.RUNNING, S.CLEANUP, S.SUCCEEDED),
        (S.QUEUED, S.DISPATCHING, S.RUNNING, S.CLEANUP, S.FAILED),
        (S.QUEUED, S.DISPATCHING, S.RUNNING, S.CLEANUP, S.TIMED_OUT),
        (S.QUEUED, S.DISPATCHING, S.CLEANUP, S.FAILED_SETUP),
        (S.QUEUED, S.DISPATCHING, S.FAILED_SETUP),
        (S.QUEUED, S.DISPATCHING, S.QUEUED, S.CANCELLED),
        (S.QUEUED, S.DISPATCHING, S.RUNNING, S.RECOVERING, S.QUEUED, S.DISPATCHING, S.RUNNING, S.LOST),
        (S.QUEUED, S.DISPATCHING, S.RUNNING, S.PAUSED, S.CLEANUP, S.CANCELLED),
    ],
)
def test_the_ways_of_the_design_are_allowed(way: tuple[State, ...]) -> None:
    for old, new in itertools.pairwise(way):
        assert check_change(old, new) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [("QUEUED", "RUNNING"), ("QUEUED", "SUCCEEDED"), ("RUNNING", "QUEUED"), ("RUNNING", "SUCCEEDED"),
     ("PAUSED", "QUEUED"), ("DISPATCHING", "SUCCEEDED"), ("RECOVERING", "RUNNING"), ("CLEANUP", "RUNNING")],
)  # fmt: skip
def test_other_changes_are_refused(old: str, new: str) -> None:
    with pytest.raises(IllegalChange, match=f"{old} does not become {new}"):
        check_change(old, new)


def test_a_final_state_never_changes() -> None:
    for old, new in itertools.product(TERMINAL, State):
        with pytest.raises(IllegalChange, match="is final"):
            check_change(old, new)


def test_a_live_state_may_get_a_new_reason() -> None:
    for state in LIVE:
        assert check_change(state, state) == state


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(ValueError, match="DONE"):
        check_change("QUEUED", "DONE")


def test_every_state_is_in_the_table_and_can_be_reached_and_ends() -> None:
    assert set(ALLOWED) == set(State)
    reached = {S.QUEUED}
    for _ in State:
        reached |= {new for old in reached for new in ALLOWED[old]}
    assert reached == set(State)
    for state in LIVE:
        ends = {state}
        for _ in State:
            ends |= {new for old in ends for new in ALLOWED[old]}
        assert ends & TERMINAL, state


def test_every_state_that_is_not_final_has_a_deadline_it_may_take() -> None:
    assert set(DEADLINES) == set(LIVE)
    for state, deadline in DEADLINES.items():
        assert deadline.seconds > 0
        assert check_change(state, deadline.then) == deadline.then


def test_every_reason_has_one_sentence_that_says_where_to_look() -> None:
    assert set(SENTENCES) == set(Reason)
    for reason in Reason:
        text = sentence(reason, "26-11-21-001", "lab")
        assert text[-1] == "."
        assert "\n" not in text
        assert "{" not in text
        assert any(word in text for word in ("26-11-21-001", "lab", "monkey list", "monkey provider")), reason


def test_reasons_of_the_client_are_those_of_the_interface() -> None:
    assert set(CLIENT_REASONS) == {
        "EXITED", "NONZERO_EXIT", "SIGNALLED", "SETUP_FAILED", "COMMAND_NOT_FOUND", "CANCELLED", "TIME_LIMIT",
        "LEASE_ENDED", "DISK_FULL", "EXIT_UNKNOWN",
    }  # fmt: skip


def test_an_unknown_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="BECAUSE"):
        sentence("BECAUSE", "26-11-21-001")


# The design's table, system by system.
THEIRS = {
    "PENDING CONFIGURING SUSPENDED COMPLETING COMPLETED TIMEOUT PREEMPTED NODE_FAIL": (
        "QUEUED DISPATCHING PAUSED CLEANUP SUCCEEDED TIMED_OUT RECOVERING LOST"
    ),
    "PENDING STARTING SETTING_UP": "QUEUED DISPATCHING DISPATCHING",
    "undefined ready submitted run start end done kill fail_start crash timeout": (
        "QUEUED QUEUED DISPATCHING DISPATCHING RUNNING SUCCEEDED SUCCEEDED CANCELLED FAILED_SETUP LOST TIMED_OUT"
    ),
}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [pair for theirs, ours in THEIRS.items() for pair in zip(theirs.split(), ours.split(), strict=True)],
)
def test_words_of_other_systems(theirs: str, ours: str) -> None:
    assert parse_filter(theirs) == parse_filter(theirs.swapcase()) == {ours}


def test_our_own_words_and_lists_of_words() -> None:
    for state in State:
        assert parse_filter(state.value) == parse_filter(state.value.lower()) == {state}
    assert parse_filter("finished") == TERMINAL
    assert parse_filter(" running, COMPLETED ,,Finished") == TERMINAL | {S.RUNNING}
    assert parse_filter("fail-start") == {S.FAILED_SETUP}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runing", "unknown state 'runing'; did you mean running?"),
        ("queued,finnished", "unknown state 'finnished'; did you mean finished?"),
        ("xyzzy", "expected one of queued, dispatching"),
        ("", "expected states"),
        (" , ", "expected states"),
    ],
)
def test_an_unknown_word_is_named_with_the_nearest(text: str, says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_filter(text, "state")
    assert caught.value.field == "state"
    assert says in caught.value.message
