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
    lab.warm_up()
    here = lab.here
    free = lab.submit(here, "wait", here.go("end"), time_limit_s=600, phase_limits_s={"queued": 600})
    # Its lease is short, so that it is renewed with every clock.
    leased = lab.submit(here, "wait", here.go("end"), retries=1, lease_s=5)
    one = {"queue": "one", "max_parallel": 1, "phase_limits_s": {"queued": 600}}
    line = [lab.submit(here, "wait", here.go("end"), **one)]
    for juid in (free, leased, *line):
        lab.until(juid, "RUNNING")
    hurt = late = 0
    again: list[str] = []
    steps = [_HOUR_S, 0, -_HOUR_S, 0] * (2 if long else 1)
    for offset in steps[: 8 if long else 3]:
        script = '[ "$MONKEY_ATTEMPT" = 1 ] && exec "$@" 3; exec "$@" 0'
        command = ["sh", "-c", script, "sh", *here.command("exit")]
        again.append(lab.submit(here, command=command, retries=1, retry_delay_s=1.5))
        lab.until(again[-1], "RECOVERING")
        clock.step(offset)
        line.append(lab.submit(here, "sleep", 0.05, **one))
        began = time.monotonic()
        job = lab.end(again[-1])
        late += time.monotonic() - began > 12
        hurt += job["state"] != "SUCCEEDED" or len(job["attempts"]) != 2
    time.sleep(6)  # more than the lease, by the clock of the last step
    said = monkey_home.monkey("list", "jobs", "--running", check=True).stdout
    for juid in (free, leased, *line):
        job = lab.job(juid)
        wanted = "RUNNING" if juid in (free, leased, line[0]) else "QUEUED"
        if job["state"] != wanted or len(job["attempts"]) > 1:
            print(juid, job["state"], job["reason"], job["message"], said)
            hurt += 1
    here.let("end")
    lost = 0
    for juid in (free, leased, *line):
        job = lab.end(juid)
        lost += job["state"] != "SUCCEEDED"
        hurt += len(job["attempts"]) != 1
    # One at a time, and in the order in which they were handed in.
    began_at = [lab.spans(juid)[1][0] for juid in line]
    hurt += began_at != sorted(began_at)
    print(f"late {late}, began {began_at}")
    juids = [free, leased, *line, *again]
    fault.row(
        fault="clock stepped an hour both ways",
        done=f"{len(again)} steps, {len(juids)} jobs running, waiting, retried",
        lost=lost,
        twice=lab.twice(juids),
        hurt=hurt + late,
        left=lab.left(),
    )
