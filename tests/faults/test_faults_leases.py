"""Leases: a host that is cut off, off, or asleep ends its job before another attempt starts; others are not touched."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from lab import FINAL, Lab, Place, another_home, send, shared_lab, side_by_side, stopped, took

pytestmark = pytest.mark.hosts

_LEASE_S = 5.0
_STOP_S = 9.0
_COLLECTION = Path(__file__).resolve().parents[2] / "collections"


@dataclass
class _Blow:
    """One fault: jobs with a lease on the host that it hits, and one without."""

    lab: Lab
    place: Place
    leased: list[str]
    free: str
    free_name: str
    woken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hurt: int = 0
    lost: int = 0

    def wrong(self, what: str) -> None:
        self.notes.append(what)

    def two_attempts(self, timeout_s: float = 150) -> None:
        """The second attempt of every leased job comes to its end, on any host."""
        for juid in self.leased:
            job = self.lab.end(juid, timeout_s)
            ends = [(one["state"], one["reason"]) for one in job["attempts"]]
            if job["state"] != "SUCCEEDED" or len(ends) != 2 or ends[0][0] != "LOST":
                self.wrong(f"{juid} {job['state']} {job['message']} {ends}")
                self.lost += job["state"] != "SUCCEEDED"
                self.hurt += len(ends) > 2

    def spared(self, wanted: str = "SUCCEEDED") -> None:
        """The job without a lease went on through all of it, in one attempt."""
        self.place.let(self.free_name)
        job = self.lab.end(self.free, 90)
        if job["state"] != wanted or len(job["attempts"]) != 1:
            self.wrong(f"{self.free} {job['state']} {job['message']} {job['attempts']}")
            self.hurt += 1

    def figures(self) -> dict[str, int]:
        print(*self.notes, sep="\n")
        twice = self.lab.twice([*self.leased, *self.woken, self.free])
        return {"lost": self.lost, "twice": twice, "hurt": self.hurt}


def _blow(lab: Lab, place: Place, leased: list[str]) -> _Blow:
    """With a job that has neither lease nor retries, until it is let go."""
    name = f"free-{time.monotonic_ns()}"
    return _Blow(lab, place, leased, lab.submit(place, "wait", place.go(name)), name)


def _running(*blows: _Blow) -> None:
    for blow in blows:
        for juid in (*blow.leased, blow.free):
            blow.lab.until(juid, "RUNNING", 90)


@pytest.fixture(scope="module")
def lab(host_pool: Any, session_monkey_home: Any, tmp_path_factory: Any) -> Lab:
    return shared_lab(host_pool, session_monkey_home, tmp_path_factory)


# -- five faults at one time, each on a host of its own: one lease has to be waited out for all of them


def _powered_off(blow: _Blow, long: bool) -> None:
    blow.place.host.kill(silent=long)
    job = blow.lab.until(blow.free, lambda job: job["reason"] == "HOST_UNREACHABLE", 90)
    if job["state"] != "RUNNING":  # unreachable is not failed
        blow.wrong(f"{job['state']} {job['message']}")
        blow.hurt += 1
    blow.two_attempts()
    blow.place.host.power_on()
    blow.spared("LOST")  # its processes went with the power: known only once the host can be asked


def _link_down(blow: _Blow, long: bool) -> None:
    blow.place.host.cut()
    if not long:  # else the silence itself is noticed, after half a minute
        send(signal.SIGKILL, blow.lab.core_ssh(blow.place))
    try:
        blow.two_attempts()
    finally:
        blow.place.host.heal()
    blow.spared()


def _link_down_shortly(blow: _Blow, long: bool) -> None:
    for _ in range(4 if long else 1):
        blow.place.host.cut()
        time.sleep(3.0)
        blow.place.host.heal()
        time.sleep(5.0 if long else 0.5)
    blow.place.let("shortly")
    for juid in blow.leased:
        job = blow.lab.end(juid, 120)
        if job["state"] != "SUCCEEDED" or len(job["attempts"]) != 1:
            blow.wrong(f"{juid} {job['state']} {job['message']} {job['attempts']}")
            blow.hurt += 1
    blow.spared()


def _client_stopped(blow: _Blow, long: bool) -> None:
    parts = blow.place.clients("daemon") + blow.place.clients("keeper")
    # Its stream wakes the daemon; with that stopped too, nobody does until the core has taken the host for silent.
    with stopped(parts + (blow.place.clients("stream") if long else [])):
        time.sleep(60.0 if long else _STOP_S)
    time.sleep(3.0)
    for juid in list(blow.leased):
        job = blow.lab.job(juid)
        if job["attempt"] == 1 and job["state"] == "RUNNING":  # it was woken in time: nothing has happened
            blow.lab.api.act(juid, "cancel")
            blow.lab.until(juid, "CANCELLED")
            blow.woken.append(blow.leased.pop(blow.leased.index(juid)))
    blow.two_attempts()
    blow.spared()


def _ssh_stopped(blow: _Blow, long: bool) -> None:
    sessions = [pid for pid, line in blow.place.host.processes() if line.startswith(f"sshd: {blow.place.host.user}")]
    with stopped(blow.lab.core_ssh(blow.place) + sessions):
        time.sleep(_STOP_S * (3 if long else 1))
    blow.two_attempts()
    blow.spared()


_BLOWS = {
    "off": (_powered_off, "host powered off, its whole process tree"),
    "down": (_link_down, "link down longer than the lease, then healed"),
    "shortly": (_link_down_shortly, "link down shorter than the lease, then healed"),
    "client": (_client_stopped, "client stopped by SIGSTOP past the lease"),
    "ssh": (_ssh_stopped, "ssh stopped by SIGSTOP past the lease, both ends"),
}


@dataclass
class _Storm:
    blows: dict[str, _Blow]
    seconds: dict[str, float]
    overlap_without_lease: int


@pytest.fixture(scope="module")
def storm(lab: Lab, session_monkey_home: Any, long: bool, tmp_path_factory: Any) -> Iterator[_Storm]:
    """All faults have happened, and all jobs have ended."""
    places = dict(zip(_BLOWS, lab.places, strict=True))
    blows: dict[str, _Blow] = {}
    no_check: list[_Sabotaged] = []

    def prepare() -> None:
        for name, place in places.items():
            if name == "shortly":
                given = {"retries": 2, "lease_s": 15.0, "retry_delay_s": 0.2}
                leased = [lab.submit(place, "wait", place.go(name), **given)]
            else:
                leased = [lab.submit_leased(place, _LEASE_S) for _ in range(3 if long else 1)]
            blows[name] = _blow(lab, place, leased)
        _running(*blows.values())

    def sabotage() -> None:
        no_check.append(_Sabotaged(session_monkey_home, [places["down"], places["shortly"]], tmp_path_factory))

    side_by_side(prepare, sabotage)
    with_no_check = no_check[0]
    seconds: dict[str, float] = {}

    def strike(name: str) -> None:
        began = time.monotonic()
        _BLOWS[name][0](blows[name], long)
        seconds[name] = time.monotonic() - began

    works = [lambda name=name: strike(name) for name in blows]
    try:
        side_by_side(*works, with_no_check.run)
    finally:
        with_no_check.close()
    yield _Storm(blows, seconds, with_no_check.overlaps)


class _Sabotaged:
    """A main node whose clients know no lease: hosts end nothing, the core goes by the rules all the same."""

    def __init__(self, home: Any, places: list[Place], tmp_path_factory: Any) -> None:
        folder = tmp_path_factory.mktemp("no-lease")
        home = another_home(home, folder)
        collection = Path(shutil.copytree(_COLLECTION, folder / "collections", ignore=shutil.ignore_patterns("tests")))
        attempt = collection / "ansible_collections/monkey/runner/plugins/module_utils/client/attempt.py"
        text = attempt.read_text()
        assert "def lease_until(self)" in text
        attempt.write_text(f"{text}\nAttempt.lease_until = lambda self: None\n")
        home.env["PYTHONPATH"] = f"{collection}:{home.env.get('PYTHONPATH', '')}"
        self.lab = Lab(home, [place.host for place in places], folder)
        self.lab.start()
        self.juid = self.lab.submit_leased(self.lab.places[0], _LEASE_S, later_s=3)
        self.lab.until(self.juid, "RUNNING")
        self.overlaps = 0

    def run(self) -> None:
        """Beside the link that goes down: the next attempt starts while the first goes on."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and "DOWN" not in _link_state(self.lab.places[0]):
            time.sleep(0.05)
        send(signal.SIGKILL, self.lab.core_ssh(self.lab.places[0]))
        self.lab.until(self.juid, FINAL, 150)
        self.overlaps = self.lab.twice([self.juid])

    def close(self) -> None:
        for place in self.lab.places:
            mine = [pid for pid, line in place.jobs_processes() if place.folder in line]
            send(signal.SIGKILL, mine)
        self.lab.home.close()


def _link_state(place: Place) -> str:
    return Path(f"/sys/class/net/{place.host.link}/operstate").read_text().upper()


def _row(fault: Any, storm: _Storm, name: str) -> None:
    blow = storm.blows[name]
    took(fault, storm.seconds[name])
    done = f"{len(blow.leased + blow.woken)} jobs with a lease, 1 without"
    fault.row(fault=_BLOWS[name][1], done=done, **blow.figures(), left=blow.lab.left())


def test_fault_host_powered_off(storm: _Storm, fault: Any) -> None:
    _row(fault, storm, "off")


def test_fault_link_down_longer_than_the_lease(storm: _Storm, fault: Any) -> None:
    _row(fault, storm, "down")


def test_fault_link_down_shorter_than_the_lease(storm: _Storm, fault: Any) -> None:
    _row(fault, storm, "shortly")


def test_fault_client_stopped(storm: _Storm, fault: Any) -> None:
    _row(fault, storm, "client")


def test_fault_ssh_stopped(storm: _Storm, fault: Any) -> None:
    _row(fault, storm, "ssh")


def test_sabotage_no_lease_check_on_the_host(storm: _Storm, fault: Any) -> None:
    took(fault, storm.seconds["down"])
    caught = storm.overlap_without_lease > 0
    fault.sabotage(fault="the client's lease check", done="link down longer than the lease", caught=caught)


# -- the core is stopped


def test_fault_core_stopped(lab: Lab, fault: Any, long: bool) -> None:
    place = lab.places[0]
    blow = _blow(lab, place, [lab.submit_leased(place, _LEASE_S)])
    here = _blow(lab, lab.here, [lab.submit_leased(lab.here, _LEASE_S)])
    _running(blow, here)
    with stopped([lab.home.core_pid()]):
        time.sleep(_STOP_S * (3 if long else 1))
    for one in (blow, here):
        one.two_attempts()
        one.spared()
    figures = [one.figures() for one in (blow, here)]
    fault.row(
        fault="core stopped by SIGSTOP past the lease",
        done="2 jobs with a lease, 2 without",
        left=lab.left(),
        **{name: sum(found[name] for found in figures) for name in figures[0]},
    )
