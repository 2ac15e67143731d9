"""What breaks on hosts and on the way to them, with jobs that have no lease: nothing lost, twice or hurt."""

from __future__ import annotations

import random
import signal
import stat
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Place, send, shared_lab, side_by_side

pytestmark = pytest.mark.hosts

_CODE = 7


@pytest.fixture
def lab(host_pool: Any, session_monkey_home: Any, tmp_path_factory: Any) -> Lab:
    return shared_lab(host_pool, session_monkey_home, tmp_path_factory)


# -- the client is killed


class _Victim:
    """A job with a setup line and a command that leaves with a code of its own."""

    def __init__(self, lab: Lab, place: Place) -> None:
        self.lab, self.place = lab, place
        self.juid = lab.submit(place, "sleep", 1, "say", "out", "exit", _CODE, setup=["sleep 0.6"])
        self.keeper_killed = False

    def wait_for(self, mark: str) -> None:
        deadline = time.monotonic() + 60
        while not (self.place.client_home / "attempts" / f"{self.juid}.1" / mark).exists():
            assert time.monotonic() < deadline, f"{self.juid} never had {mark}"
            time.sleep(0.01)

    def kill(self, kind: str) -> int:
        pids = self.place.clients("daemon") if kind != "keeper" else []
        if kind != "daemon":
            self.keeper_killed = True
            pids += self.place.clients(f"keeper {self.juid}.1")
        return bool(send(signal.SIGKILL, pids))

    def verdict(self, daemon_killed: bool) -> tuple[int, int]:
        """(lost, hurt): by what the job itself left behind, compared with the record."""
        job = self.lab.end(self.juid)
        tally = self.lab.tally()
        ran, ended = (f"{self.juid}.1" in names for names in (tally.begun, tally.ended))
        hurt = int(ran and not ended) + int(job["attempt"] != 1)
        right = (job["state"], job["exit_code"], self.lab.log(self.juid)) == ("FAILED", _CODE, b"out\n")
        # A keeper killed before the command: not started. Both killed: nobody was there to see the exit code.
        may_be_unknown = self.keeper_killed and (daemon_killed or not ran)
        honest = may_be_unknown and (job["state"], job["reason"]) == ("LOST", "EXIT_UNKNOWN")
        if hurt or not (right or honest):
            print(self.juid, self.place.name, ran, ended, job["state"], job["reason"], job["message"])
        return int(not (right or honest)), hurt


_MARKS = ("spec.json", "setup.json", "command.json")  # accepted, setting up, running
_DAEMON_DIES = [*(("daemon", mark) for mark in _MARKS), ("both", "command.json")]
_KEEPERS_DIE = [("keeper", "setup.json"), ("keeper", "command.json")]


def test_fault_client_killed(lab: Lab, fault: Any, long: bool) -> None:
    figures: list[tuple[int, int]] = []
    juids: list[str] = []
    kills = 0

    def strike(place: Place, plan: list[tuple[str, str]], pick: random.Random) -> None:
        nonlocal kills
        victims = [_Victim(lab, place) for _ in plan]
        for (kind, mark), victim in sorted(zip(plan, victims, strict=True), key=lambda two: _MARKS.index(two[0][1])):
            victim.wait_for(mark)
            time.sleep(pick.uniform(0, 0.3) if long else 0)
            kills += victim.kill(kind)
        daemon_killed = any(kind != "keeper" for kind, _ in plan)
        figures.extend(victim.verdict(daemon_killed) for victim in victims)
        juids.extend(victim.juid for victim in victims)

    for number in range(5 if long else 1):
        pick = random.Random(number)
        plans = [_DAEMON_DIES, _DAEMON_DIES, _KEEPERS_DIE]
        if long:
            plans = [[(pick.choice(("daemon", "keeper", "both")), pick.choice(_MARKS)) for _ in one] for one in plans]
        places = (lab.here, lab.places[0], lab.places[2])
        side_by_side(*(partial(strike, place, plan, pick) for place, plan in zip(places, plans, strict=True)))
    assert kills >= (30 if long else 6)
    fault.row(
        fault="kill -9 of the client: daemon, keeper, both",
        done=f"{kills} kills, {len(juids)} jobs, here and on hosts",
        lost=sum(lost for lost, _ in figures),
        twice=lab.twice(juids),
        hurt=sum(hurt for _, hurt in figures),
        left=lab.left(),
    )


# -- sshd is killed again and again


def test_fault_sshd_killed(lab: Lab, fault: Any, long: bool) -> None:
    place = lab.places[1]
    times, every_s = (12, 5.0) if long else (3, 1.5)
    steady = [lab.submit(place, "wait", place.go("sshd"), "exit", _CODE) for _ in range(3)]
    for juid in steady:
        lab.until(juid, "RUNNING")
    fresh: list[str] = []
    killed = 0
    for number in range(times):
        fresh.append(lab.submit(place, "sleep", 0.3, "exit", _CODE))
        time.sleep(every_s)
        sshds = [pid for pid, line in place.host.processes() if line.startswith("sshd")]
        killed += send(signal.SIGKILL, sshds)
        if number % 3 == 2:
            lab.steady()  # a host that comes and goes is drained
    place.let("sshd")
    juids = steady + fresh
    jobs = [lab.end(juid, 120) for juid in juids]
    begun, ended = lab.tally().begun, lab.tally().ended
    wrong = [job for job in jobs if (job["state"], job["exit_code"]) != ("FAILED", _CODE)]
    # A launch that was cut before it could begin may spend a number; one attempt runs, and to its end.
    hurt = [job for job in jobs if [name for name in begun if name.startswith(job["juid"])] != [
        f"{job['juid']}.{job['attempt']}"] or f"{job['juid']}.{job['attempt']}" not in ended]  # fmt: skip
    hurt += [job for job in jobs if job["juid"] in steady and job["attempt"] != 1]
    for job in wrong + hurt:
        print(job["juid"], job["state"], job["reason"], job["message"], job["attempts"])
    assert killed >= times
    fault.row(
        fault=f"sshd killed every {every_s:g} s",
        done=f"{times} times, {killed} processes, {len(juids)} jobs",
        lost=len(wrong),
        twice=lab.twice(juids),
        hurt=len(hurt),
        left=lab.left(),
    )


# -- events are replayed and reordered on their way

# Stands where ssh is: passes everything on but the stream, whose lines it says again, late, and in another order as far
# as TCP and the client's journal allow: attempts among each other, and again from any earlier one after a cut.
_TAMPER = r"""
import json, os, random, subprocess, sys, threading
real = [{real!r}, *sys.argv[1:]]
if " stream " not in sys.argv[-1]:
    os.execv(real[0], real)
pick = random.Random(os.getpid())
child = subprocess.Popen(real, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def orders():
    for line in sys.stdin.buffer:
        if b'"op": "ack"' in line and pick.random() < 0.5:
            continue  # never arrives: the next connection tells all of it again
        child.stdin.write(line)
        child.stdin.flush()
    child.stdin.close()

threading.Thread(target=orders, daemon=True).start()
said, held, count = [], None, 0

def say(line):
    os.write(1, line)

for line in child.stdout:
    word = json.loads(line)
    if "seq" not in word and word["type"] != "log":
        say(line)
        continue
    count += 1
    if held and held[0]["juid"] == word["juid"]:
        say(held[1])
        held = None
    said.append(line)
    if held is None and "seq" in word and pick.random() < 0.4:
        held = (word, line)  # until something of another attempt has passed it
    else:
        say(line)
        if held:
            say(held[1])
            held = None
    if pick.random() < 0.3:
        for again in said[pick.randrange(len(said)):]:
            say(again)
    if count % 40 == 0:
        if pick.random() < 0.5:
            say(line[: len(line) // 2])  # cut in the middle of a line
        os._exit(255)
    with open({notes!r}, "a") as notes:
        notes.write("x")
"""


def test_fault_events_replayed(
    make_monkey_home: Any, host_pool: Any, tmp_path: Path, fault: Any, long: bool, lab: Lab
) -> None:
    home = make_monkey_home("mh")
    programs = tmp_path / "bin"
    programs.mkdir()
    notes = tmp_path / "notes"
    text = _TAMPER.format(real="/usr/bin/ssh", notes=str(notes))
    (programs / "ssh").write_text(f"#!/usr/bin/python3\n{text}")
    (programs / "ssh").chmod(0o700 | stat.S_IXUSR)
    home.env["PATH"] = f"{programs}:{home.env['PATH']}"
    own = Lab(home, [lab.places[0].host], tmp_path)
    own.start()
    place = own.places[0]
    count = 80 if long else 8
    lines = [f"{number}-{'x' * 50}" for number in range(20)]
    say = [word for line in lines for word in ("sleep", 0.05, "say", line)]
    juids = [own.submit(place, *say, "exit", number % 3) for number in range(count)]
    wrong = hurt = 0
    for number, juid in enumerate(juids):
        job = own.end(juid, 120)
        expected = ("FAILED", number % 3) if number % 3 else ("SUCCEEDED", 0)
        whole = own.log(juid) == "".join(f"{line}\n" for line in lines).encode()
        states = [entry["state"] for entry in job["history"]]
        order = [state for at, state in enumerate(states) if at == 0 or states[at - 1] != state]
        if (job["state"], job["exit_code"]) != expected or not whole:
            wrong += 1
            print(juid, job["state"], job["exit_code"], job["message"], own.log(juid))
        way = ["QUEUED", "DISPATCHING", "RUNNING", "CLEANUP", job["state"]]
        if len(job["attempts"]) != 1 or order != [state for state in way if state in order]:
            hurt += 1
            print(juid, job["attempts"], order)
    assert notes.stat().st_size > count
    fault.row(
        fault="events and log bytes replayed and reordered, acknowledgements lost",
        done=f"{count} jobs, {notes.stat().st_size} lines tampered with",
        lost=wrong,
        twice=own.twice(juids),
        hurt=hurt,
        left=own.left(),
    )
