"""The clock of the main node is set an hour forward and back while jobs run, wait, and are to be tried again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from lab import Lab

pytestmark = pytest.mark.hosts

_HOUR_S = 3600

# Python reads it at every start of core, playbook and client (not of the jobs: they run with -I). The time of day is
# what the kernel says plus what the file says; nothing else can step one process's clock (time namespaces leave
# CLOCK_REALTIME alone).
_STEPPED = '''
import datetime, time

def step():
    real_s, real = time.time, datetime.datetime

    def offset_s():
        try:
            with open({offset!r}) as file:
                return int(file.read() or 0)
        except OSError:
            return 0

    def stepped_s():
        return real_s() + offset_s()

    class Stepped(real):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(stepped_s(), tz)

        def __repr__(self):  # Ansible writes one into a program
            return real.__repr__(self).replace("Stepped", "datetime.datetime")

    time.time = stepped_s
    datetime.datetime = Stepped

step()
'''


class _Clock:
    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._offset = folder / "offset"
        (folder / "stepped").mkdir()
        (folder / "stepped" / "sitecustomize.py").write_text(_STEPPED.format(offset=str(self._offset)))
        env["PYTHONPATH"] = f"{folder / 'stepped'}:{env.get('PYTHONPATH', '')}"

    def step(self, seconds: int) -> None:
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.rename(self._offset)


def test_fault_clock_stepped(monkey_home: Any, tmp_path: Path, fault: Any, long: bool) -> None:
    clock = _Clock(tmp_path, monkey_home.env)
    lab = Lab(monkey_home, [], tmp_path)
    lab.start()
    here = lab.here
    one = {"queue": "one", "max_parallel": 1, "phase_limits_s": {"queued": 600}}
    line = [lab.submit(here, "wait", here.go("end"), **one)]
    # A short lease: it is renewed under each of the clocks.
    leased = lab.submit(here, "wait", here.go("end"), retries=1, lease_s=5)
    free = lab.submit(here, "wait", here.go("end"), time_limit_s=600, phase_limits_s={"queued": 600})
    running = [line[0], leased, free]
    again: list[str] = []
    steps = 0
    hurt: list[str] = []
    for _ in range(4 if long else 1):
        again.append(lab.submit(here, command=_fails_once(lab), retries=1, retry_delay_s=6, name="again"))
        lab.until(again[-1], "RECOVERING", 120)
        began = time.monotonic()
        for offset in (_HOUR_S, -_HOUR_S, 0):
            clock.step(offset)
            steps += 1
            if offset:
                line.append(lab.submit(here, "sleep", 0.05, **one))
            time.sleep(1)
        lab.until(again[-1], lambda job: job["state"] != "RECOVERING")
        if not 5 < time.monotonic() - began < 12:
            hurt.append(f"{again[-1]} waited {time.monotonic() - began:.1f} s of 6 s")
        for juid in (*running, *line):
            job = lab.job(juid)
            if job["state"] != ("RUNNING" if juid in running else "QUEUED") or job["attempt"] > 1:
                hurt.append(f"{juid} {job['state']} {job['reason']} {job['message']}")
        job = lab.end(again[-1], 120)
        if (job["state"], job["attempt"]) != ("SUCCEEDED", 2):
            hurt.append(f"{again[-1]} {job['state']} {job['message']}")
    here.let("end")
    juids = [*running, *line[1:]]
    ended = [lab.end(juid, 120) for juid in juids]
    hurt += [job["juid"] for job in ended if len(job["attempts"]) != 1]
    # One at a time, and in the order in which they were handed in.
    began_at = [lab.spans(juid)[1][0] for juid in line]
    if began_at != sorted(began_at):
        hurt.append(f"the queue's order: {began_at}")
    print(*hurt, sep="\n")
    fault.row(
        fault="clock stepped an hour both ways",
        done=f"{steps} steps, {len(juids + again)} jobs that ran, waited, were retried",
        lost=sum(job["state"] != "SUCCEEDED" for job in ended),
        twice=lab.twice(juids + again),
        hurt=len(hurt),
        left=lab.left(),
    )


def _fails_once(lab: Lab) -> list[str]:
    script = '[ "$MONKEY_ATTEMPT" = 1 ] && exec "$@" 3; exec "$@" 0'
    return ["sh", "-c", script, "sh", *lab.here.command("exit")]
