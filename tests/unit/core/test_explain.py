"""`explain` tells from the record alone why a job is where it is. Records are made by the parts that make them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from monkey.core.ending import conclude, never_there, requeue
from monkey.explain import explain
from monkey.jobs import Job, JobBook
from monkey.scheduler import HostView, Need, Placement, Queue, Waiting, decide
from monkey.states import Reason, State
from monkey.store import MemoryStore

FIELDS: dict[str, Any] = {
    "name": "train",
    "provider": "lab",
    "instance": None,
    "command": ["true"],
    "resources": {"cpus": 2.0, "gpus": 1, "memory_mb": None},
    "priority": 500,
    "retries": 0,
    "retry_on": None,
    "retry_delay_s": 10.0,
    "queue": None,
    "depends_on": [],
}
SENT = Placement(
    "a",
    "smart",
    "host a has the most free of the 2 hosts that could take it now",
    [("b", "could take it too: 1 CPU free"), ("c", "drained after 3 failures")],
    Waiting("26-01-01-007", "WAITING_FOR_SLOT", "waits for a free slot (8 CPU)"),
)


@pytest.fixture
def book() -> Iterator[JobBook]:
    store = MemoryStore()
    yield JobBook(store)
    store.close()


def queued(book: JobBook, **fields: Any) -> str:
    return str(book.add({**FIELDS, **fields}, None)["juid"])


def sent(book: JobBook, juid: str, host: str = "a", placement: Placement | None = SENT) -> None:
    """As the dispatcher does it."""
    job = book.get(juid)
    number = job["attempt"] + 1
    entry: Job = {"attempt": number, "provider": "lab", "host": host, "dispatched_at": "2026-01-01T00:00:00.000Z"}
    if placement:
        entry["placement"] = asdict(placement)
    attempts = [*job["attempts"], entry]
    book.change(
        juid, State.DISPATCHING, Reason.DISPATCHED, f"goes to {host}", host=host, attempt=number, attempts=attempts
    )


def ran(
    book: JobBook, juid: str, state: State, reason: Reason, message: str | None = None, code: int | None = None
) -> None:
    """An attempt that is sent, runs and ends."""
    sent(book, juid)
    book.change(juid, State.RUNNING, Reason.STARTED)
    outcome = {"state": str(state), "reason": str(reason), "message": message}
    if state == State.LOST:
        conclude(book, juid, outcome)
    else:
        book.change(juid, State.CLEANUP, Reason.COLLECTING, outcome=outcome, exit_code=code)
        conclude(book, juid)


def tell(book: JobBook, juid: str, waiting: Waiting | None = None, *depends: Job, later_s: float = 0.0) -> list[str]:
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=later_s)
    sentences = explain(book.get(juid), waiting=waiting, dependencies=depends, now=now)
    assert sentences[-1].at is None and sentences[-1].text.startswith("Look next: `monkey ")
    times = [sentence.at for sentence in sentences[:-1]]
    assert times == sorted(times, key=str) and None not in times
    assert all(sentence.text.endswith(".") and "\n" not in sentence.text for sentence in sentences)
    return [sentence.text for sentence in sentences]


def waiting_of(juid: str, hosts: list[HostView]) -> Waiting:
    need = Need(juid, "lab", cpus=2.0, gpus=1)
    why = decide(Queue([need]), hosts).why(need)
    assert why
    return why


def test_waiting_for_a_slot(book: JobBook) -> None:
    juid = queued(book)
    submitted, now, look = tell(
        book, juid, waiting_of(juid, [HostView("lab", "a", cpus=4.0, gpus=1, used_gpus=1, running=1)])
    )
    assert submitted == "Submitted for provider lab with priority 500; it asks for 2 CPU, 1 GPU."
    assert now == (
        "It waits now (WAITING_FOR_SLOT): waits for a free slot (2 CPU, 1 GPU) on provider lab: "
        "1 running job holds host a."
    )
    assert "monkey list jobs --running" in look


def test_waiting_for_a_drained_host(book: JobBook) -> None:
    juid = queued(book)
    drained = HostView("lab", "a", cpus=4.0, gpus=1, ready=False, why_not="drained after 3 failures")
    *_, now, look = tell(book, juid, waiting_of(juid, [drained]))
    assert now == "It waits now (WAITING_FOR_HOST): waits for host a of provider lab: drained after 3 failures."
    assert "monkey info provider lab" in look


def test_waiting_for_its_queue(book: JobBook) -> None:
    juid = queued(book)
    waits = Waiting(juid, "WAITING_FOR_QUEUE", "3 of at most 3 jobs of queue sweep-7 are out")
    assert "It waits now (WAITING_FOR_QUEUE): 3 of at most 3 jobs of queue sweep-7 are out." in tell(book, juid, waits)


def test_waiting_for_a_dependency(book: JobBook) -> None:
    juid = queued(book)
    done = {"juid": "26-01-01-001", "nickname": "bob", "state": "SUCCEEDED", "when": "success"}
    runs = {"juid": "26-01-01-002", "nickname": "kob", "state": "RUNNING", "when": "success"}
    ends = {"juid": "26-01-01-003", "nickname": "lob", "state": "QUEUED", "when": "end"}
    told = tell(book, juid, None, done, runs, ends)
    assert told[1:3] == [
        "It waits now for job 26-01-01-002 (kob) to succeed, which is RUNNING.",
        "It waits now for job 26-01-01-003 (lob) to end, which is QUEUED.",
    ]
    assert "monkey explain 26-01-01-002" in told[-1]


def test_a_dependency_that_failed(book: JobBook) -> None:
    juid = queued(book)
    parent = {"juid": "26-01-01-002", "nickname": "kob", "state": "FAILED", "when": "success"}
    assert "It can never start: job 26-01-01-002 (kob) had to succeed and ended FAILED." in tell(
        book, juid, None, parent
    )
    book.change(juid, State.CANCELLED, Reason.DEPENDENCY_FAILED, "needs 26-01-01-002 to succeed, which ended FAILED")
    told = tell(book, juid, None, parent)
    assert told[1] == (
        "Monkey ended it while it waited (DEPENDENCY_FAILED): needs 26-01-01-002 to succeed, which ended FAILED."
    )
    assert "monkey explain 26-01-01-002" in told[-1] and f"monkey job reset {juid}" in told[-1]


def test_held_by_the_user(book: JobBook) -> None:
    juid = queued(book)
    book.change(juid, None, Reason.PAUSED_BY_USER, held=True)
    waits = Waiting(juid, "PAUSED_BY_USER", "Held by you")
    assert tell(book, juid, waits)[1:] == [
        "You paused it in the queue.",
        f"It waits now because you paused it; `monkey job resume {juid}` lets it go on.",
        f"Look next: `monkey job resume {juid}` lets it go on.",
    ]
    book.change(juid, None, Reason.RELEASED, held=False)
    assert tell(book, juid)[2] == "You let it go on."


def test_lost_and_retried(book: JobBook) -> None:
    juid = queued(book, retries=3)
    ran(book, juid, State.LOST, Reason.HOST_LOST, "host a was not heard of for 900 s")
    told = tell(book, juid, later_s=4)
    went, started, ended, why, now = told[1:6]
    assert went.startswith("Attempt 1 went to host a (policy smart): host a has the most free of the 2 hosts")
    assert "Also considered: b (could take it too: 1 CPU free), c (drained after 3 failures)." in went
    assert "It passed job 26-01-01-007, which could not go then: waits for a free slot (8 CPU)." in went
    assert started == "Its command started on host a."
    assert ended == "Attempt 1 ended LOST on host a (HOST_LOST): host a was not heard of for 900 s."
    assert why == (
        "It is restarted, because attempt 1 was lost and `retry_on` names that: retry 1 of 3, after a pause of 10 s."
    )
    assert now.startswith("It waits now until ") and now.endswith("(6 s from now), the pause before retry 1 of 3.")
    requeue(book, juid, Reason.RELEASED)
    ran(book, juid, State.SUCCEEDED, Reason.EXITED, code=0)
    told = tell(book, juid)
    assert told[5] == "The pause was over: back in the queue for the next attempt."
    assert told[6].startswith("Attempt 2 went to host a")
    assert told[-2] == "Attempt 2 succeeded on host a: its command ended with exit code 0."
    assert f"monkey output {juid}" in told[-1]


def test_retries_that_are_used_up(book: JobBook) -> None:
    juid = queued(book, retries=1)
    for _ in range(2):
        ran(book, juid, State.FAILED, Reason.NONZERO_EXIT, "the command ended with an error", code=3)
        if book.get(juid)["state"] == State.RECOVERING:
            requeue(book, juid, Reason.RELEASED)
    told = tell(book, juid)
    assert "because attempt 1 failed with exit code 3 and `retry_on` names that: retry 1 of 1" in told[4]
    assert (
        told[-3] == "Attempt 2 ended FAILED on host a with exit code 3 (NONZERO_EXIT): the command ended with an error."
    )
    assert told[-2] == "It was not tried again: all 1 retries are used up."
    assert f"monkey logs {juid}" in told[-1]


def test_a_failure_that_retry_on_does_not_name(book: JobBook) -> None:
    juid = queued(book, retries=2, retry_on=["lost", 75])
    ran(book, juid, State.FAILED, Reason.NONZERO_EXIT, "it failed", code=3)
    assert tell(book, juid)[-2] == (
        "It was not tried again: retry_on (lost, 75) does not name what happened (failed with exit code 3)."
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.SETUP_FAILED, "in one of its setup lines"),
        (Reason.ENVIRONMENT_FAILED, "while its environment was built"),
        (Reason.INSTALL_FAILED, "in a role under `install`"),
        (Reason.PHASE_LIMIT, "before its command ran"),
    ],
)
def test_failed_in_setup(book: JobBook, reason: Reason, words: str) -> None:
    juid = queued(book)
    sent(book, juid)
    conclude(book, juid, {"state": State.FAILED_SETUP, "reason": str(reason), "message": "no matching numpy"})
    told = tell(book, juid)
    assert told[2:4] == [
        f"Attempt 1 failed in setup on host a, {words} ({reason}): no matching numpy. "
        f"Its last lines are in `monkey logs {juid}`.",
        "It was not tried again: it was submitted without retries.",
    ]
    assert (
        told[-1] == f"Look next: `monkey logs {juid}` shows its last lines; `monkey job reset {juid}` tries it again."
    )


def test_cancelled_by_the_user_in_the_queue_and_under_way_then_reset(book: JobBook) -> None:
    juid = queued(book)
    book.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, cancel_requested=True)
    assert tell(book, juid)[1] == "You cancelled it while it waited."
    requeue(book, juid, Reason.RESET, reset=True, cancel_requested=False)
    assert tell(book, juid)[2] == "You put it back into the queue (reset); its retries are counted anew."
    sent(book, juid)
    book.change(juid, State.RUNNING, Reason.STARTED)
    book.change(juid, cancel_requested=True)
    assert tell(book, juid)[-2] == "You asked to cancel it; that is not done yet."
    ended = {"state": str(State.CANCELLED), "reason": str(Reason.CANCELLED_BY_USER), "message": None}
    book.change(juid, State.CLEANUP, Reason.COLLECTING, outcome=ended)
    conclude(book, juid)
    assert tell(book, juid)[-2] == "Attempt 1 ended on host a because you asked to cancel it."


def test_ended_by_a_limit_and_not_by_the_user(book: JobBook) -> None:
    juid = queued(book)
    sent(book, juid)
    book.change(juid, None, Reason.PHASE_LIMIT, "installs took longer than 60 s", cancel_requested=True)
    told = tell(book, juid)
    assert "Monkey asked to end it: installs took longer than 60 s." in told
    assert told[-2] == "Monkey asked to end it because a time limit was reached; that is not done yet."


def test_a_host_that_comes_and_goes_is_counted(book: JobBook) -> None:
    juid = queued(book)
    sent(book, juid)
    book.change(juid, State.RUNNING, Reason.STARTED)
    for _ in range(150):
        book.change(juid, None, Reason.HOST_UNREACHABLE, "connection refused; the job is kept")
        book.change(juid, None, Reason.STARTED)
    told = tell(book, juid)
    assert len(told) < 9
    away = next(
        text for text in told if text.startswith("Host a does not answer: connection refused; the job is kept.")
    )
    assert "times, last at" in away
    assert any(text.startswith("Host a answers again; the job had gone on.") for text in told)
    assert told[-2] == "It runs on host a."


def test_an_attempt_that_never_got_to_its_host(book: JobBook) -> None:
    juid = queued(book)
    sent(book, juid)
    never_there(book, juid, "host a: connection refused")
    sent(book, juid, "b", None)
    told = tell(book, juid)
    assert told[2] == (
        "Attempt 1 is given up, it went back into the queue: host a: connection refused; it goes to another host."
    )
    assert told[3] == "Attempt 2 went to host b; why that one was not recorded."
    assert told[4].startswith("It is on its way to host b (DISPATCHED)")


def test_attempts_older_than_the_history_are_told_too(book: JobBook) -> None:
    juid = queued(book, retries=1)
    ran(book, juid, State.LOST, Reason.HOST_LOST, "gone")
    requeue(book, juid, Reason.RELEASED)
    sent(book, juid, "b")
    book.change(juid, State.RUNNING, Reason.STARTED)
    for n in range(220):
        book.change(juid, None, Reason.HOST_UNREACHABLE, f"away {n % 2}")
    now = datetime.datetime.now(datetime.UTC)
    told = [s.text for s in explain(book.get(juid), waiting=None, dependencies=[], now=now)]
    assert told[1].startswith("Attempt 1 went to host a")
    assert told[2] == "Attempt 1 ended LOST on host a (HOST_LOST): gone."
    assert told[3].startswith("It is restarted, because attempt 1 was lost")
    assert told[4].startswith("Attempt 2 went to host b")


def test_run_again_from_an_earlier_job(book: JobBook) -> None:
    juid = queued(book, rerun_of="26-01-01-001", instance="a")
    assert tell(book, juid)[0].startswith("Submitted for host a of provider lab")
    assert tell(book, juid)[0].endswith("It runs job 26-01-01-001 again.")
