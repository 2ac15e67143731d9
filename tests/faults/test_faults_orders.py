"""Cancel, pause and resume in every state of a job: nothing of it goes on, and it runs once."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from lab import FINAL, Json, Lab, send, shared_lab, side_by_side

from monkey.errors import UsageProblem

pytestmark = pytest.mark.hosts

# What may run of a job that is held back for this long.
_HELD_S = 1.5


@pytest.fixture
def lab(host_pool: Any, session_monkey_home: Any, tmp_path_factory: Any) -> Lab:
    return shared_lab(host_pool, session_monkey_home, tmp_path_factory)


@pytest.fixture
def silent_index() -> Iterator[str]:
    """URL of a package index that takes requests and never answers: pip waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


@dataclass
class _Case:
    """A way to bring a job to a state. ``submit`` gives its JUID, ``reached`` says that it is there."""

    name: str
    submit: Callable[[], str]
    reached: Callable[[Json], Any]
    after_s: float = 0.0
    may_succeed: bool = False
    behind_blocker: bool = False


class _Cases:
    """Every state that a job can be in, here; and a host that does not answer."""

    def __init__(self, lab: Lab, index: str) -> None:
        self.lab = lab
        self.go = f"orders-{time.monotonic_ns()}"
        self._index = index
        self._blocker = lab.submit(lab.here, "wait", lab.here.go(self.go), queue=self.go, max_parallel=1)
        lab.until(self._blocker, "RUNNING")

    def all(self) -> list[_Case]:
        state = partial(_state)
        one = {"queue": self.go, "max_parallel": 1}
        after = {"depends_on": [{"job": self._blocker, "when": "end"}]}
        failing = {"retries": 1, "retry_delay_s": 3}
        pip = {"run": {"env_type": "pip", "env_content": f"--index-url {self._index}\nnot-there\n"}}
        persist = {"persist": [{"name": "out", "path": "out"}]}
        starting = [
            _Case(f"dispatching, {s:g} s on its way", partial(self._job, "sleep", 0.1), state("DISPATCHING"), s, True)
            for s in (0.0, 0.7, 1.4)
        ]
        return [
            _Case("queued", partial(self._job, "sleep", 0.1, **one), state("QUEUED"), behind_blocker=True),
            _Case("waiting for a job", partial(self._job, "sleep", 0.1, **after), state("QUEUED"), behind_blocker=True),
            _Case("held", self._held, state("QUEUED"), behind_blocker=True),
            _Case("waiting for a retry", partial(self._once_failing, **failing), state("RECOVERING")),
            *starting,
            _Case("environment", partial(self._job, "sleep", 0.1, **pip), _reason("BUILDING_ENVIRONMENT"), 1.0),
            _Case("setup", partial(self._job, "sleep", 0.1, setup=["sleep 4"]), _reason("SETTING_UP"), 0.2),
            _Case("running", partial(self._job, "sleep", 4), state("RUNNING")),
            _Case("paused", self._paused, state("PAUSED")),
            _Case("cleanup", partial(self._job, "sleep", 0.1, **persist), state("CLEANUP"), 0.0, True),
        ]

    def free(self) -> None:
        """Let the blocker end, and what waits for it begin."""
        self.lab.here.let(self.go)

    def end(self) -> None:
        """The blocker has ended."""
        self.free()
        self.lab.end(self._blocker)

    def _job(self, *actions: Any, **fields: Any) -> str:
        return self.lab.submit(self.lab.here, *actions, **fields)

    def _once_failing(self, **fields: Any) -> str:
        witness = self.lab.here.command("exit")
        script = '[ "$MONKEY_ATTEMPT" = 1 ] && exec "$@" 3; exec "$@" 0'
        return self._job(command=["sh", "-c", script, "sh", *witness], **fields)

    def _held(self) -> str:
        juid = self._job("sleep", 0.1, queue=self.go, max_parallel=1)
        self.lab.api.act(juid, "pause")
        return juid

    def _paused(self) -> str:
        juid = self._job("sleep", 1)
        self.lab.until(juid, "RUNNING")
        self.lab.api.act(juid, "pause")
        return juid


def _state(name: str) -> Callable[[Json], Any]:
    return lambda job: job["state"] == name


def _reason(name: str) -> Callable[[Json], Any]:
    return lambda job: job["reason"] == name


class _Figures:
    """Filled by cases that run side by side."""

    def __init__(self) -> None:
        self.juids: list[str] = []
        self.lost = self.hurt = 0
        self.names: list[str] = []

    def add(self, case: _Case, juid: str, lost: bool = False, hurt: bool = False, said: str = "") -> None:
        self.juids.append(juid)
        self.names.append(case.name)
        self.lost += lost
        self.hurt += hurt
        if lost or hurt:
            print(f"{case.name}: {juid} {said}")


def _bring(lab: Lab, case: _Case) -> str:
    juid = case.submit()
    lab.until(juid, case.reached, 60)
    time.sleep(case.after_s)
    return juid


def test_fault_cancel_in_every_state(lab: Lab, fault: Any, long: bool, silent_index: str) -> None:
    figures = _Figures()
    for _ in range(4 if long else 1):
        cases = _Cases(lab, silent_index)
        try:
            works = [partial(_cancel, lab, case, figures) for case in cases.all()]
            side_by_side(*works, partial(_cancel_unreachable, lab, figures))
        finally:
            cases.end()
    left = lab.left() + sum("not-there" in line or silent_index in line for _, line in lab.local_lines())
    _row(lab, fault, "cancel in every state", figures, left)


def _cancel(lab: Lab, case: _Case, figures: _Figures) -> None:
    juid = _bring(lab, case)
    lab.api.act(juid, "cancel")
    job = lab.end(juid, 30)
    ran = _executions(lab, juid)
    time.sleep(0.5)
    wanted = ("CANCELLED", "SUCCEEDED") if case.may_succeed else ("CANCELLED",)
    began_after = _executions(lab, juid) - ran
    said = f"{job['state']} {job['reason']} {job['message']} {began_after}"
    figures.add(case, juid, lost=job["state"] not in wanted, hurt=bool(began_after), said=said)


def _cancel_unreachable(lab: Lab, figures: _Figures) -> None:
    """Cancelled while its host is cut off: it ends when the host answers again, and not by itself before."""
    place = lab.places[3]
    case = _Case("host unreachable", lambda: lab.submit(place, "beat", 300), _reason("HOST_UNREACHABLE"))
    juid = case.submit()
    lab.until(juid, "RUNNING")
    place.host.cut()
    try:
        send(9, lab.core_ssh(place))
        lab.until(juid, case.reached, 40)
        lab.api.act(juid, "cancel")
    finally:
        place.host.heal()
    job = lab.end(juid, 60)
    figures.add(case, juid, lost=job["state"] != "CANCELLED", said=f"{job['state']} {job['message']}")


def test_fault_pause_and_resume_in_every_state(lab: Lab, fault: Any, long: bool, silent_index: str) -> None:
    figures = _Figures()
    for _ in range(4 if long else 1):
        cases = _Cases(lab, silent_index)
        try:
            wanted = [case for case in cases.all() if case.name != "environment"]
            side_by_side(*(partial(_pause, lab, case, figures, cases) for case in wanted))
        finally:
            cases.end()
    _row(lab, fault, "pause and resume in every state", figures, lab.left())


def _pause(lab: Lab, case: _Case, figures: _Figures, cases: _Cases) -> None:
    juid = _bring(lab, case)
    refused = ""
    try:
        lab.api.act(juid, "pause")
    except UsageProblem as problem:  # only what is as good as over may be refused
        refused = str(problem)
    ran = _executions(lab, juid)
    time.sleep(_HELD_S)
    now = lab.job(juid)
    live = now["state"] not in {"CLEANUP", *FINAL}
    # Paused between two of these looks at it, it may just have begun.
    moved = live and now["state"] != "PAUSED" and bool(_executions(lab, juid) - ran)
    with contextlib.suppress(UsageProblem):
        lab.api.act(juid, "resume")
    if case.behind_blocker:
        cases.free()
    job = lab.end(juid, 60)
    attempts = 2 if case.name == "waiting for a retry" else 1
    good = job["state"] == "SUCCEEDED" and len(job["attempts"]) == attempts
    said = f"{refused} {now['state']}, moved {moved}; {job['state']} {job['message']} {len(job['attempts'])}"
    figures.add(case, juid, lost=not good, hurt=moved or bool(refused and live), said=said)


def _row(lab: Lab, fault: Any, name: str, figures: _Figures, left: int) -> None:
    states = len(set(figures.names))
    fault.row(
        fault=name,
        done=f"{len(figures.juids)} jobs, {states} states",
        lost=figures.lost,
        twice=lab.twice(figures.juids),
        hurt=figures.hurt,
        left=left,
    )


def _executions(lab: Lab, juid: str) -> set[str]:
    """Executions of a job that began."""
    return {name for name in lab.tally().begun if name.startswith(f"{juid}.")}
