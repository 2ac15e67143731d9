"""Cancelling ends everything of a job, also what does its best to stay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

# A tree of processes that ignore SIGTERM: children, one that left the session, one that double-forked and left it, and
# one that did so with an empty environment and another working folder. Each writes its pid and goes on for ever.
STUBBORN = r"""
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)

def stay(name):
    open(os.path.join(here, "alive-" + name), "w").write(str(os.getpid()))
    while True:
        time.sleep(0.1)

here = os.getcwd()
if os.fork() == 0:
    stay("child")
if os.fork() == 0:
    os.setsid()
    stay("setsid")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay("double")
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    os.chdir("/")
    if os.fork() == 0:
        if os.fork() == 0:
            os.execve(sys.executable, ["innocent", "-c",
                "import os, signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
                "open(%r, 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.1)"
                % os.path.join(here, "alive-exec")], {})
        os._exit(0)
    os._exit(0)
while sum(name.startswith("alive-") for name in os.listdir(here)) < 4:
    time.sleep(0.02)
print("all are there", flush=True)
stay("first")
"""


@pytest.mark.parametrize("where", ["lab", "local"])
def test_no_process_of_a_cancelled_job_survives(lab: Any, project: Any, where: str) -> None:
    folder = project({"stubborn.py": STUBBORN})
    juid = lab.start(folder, "-p", where, "--cpus", "0.1", "python3", "stubborn.py")
    lab.log_says(juid, "all are there")
    job = lab.job(juid)

    def left() -> list[tuple[int, str]]:
        if where == "lab":
            mine = lab.host_of(job).processes("researcher")
        else:
            mine = [(pid, _line(pid)) for pid in lab.home.processes()]
            mine += [(pid, line) for pid, line in _all() if "alive-exec" in line and str(lab.home.path) in line]
        return [(pid, line) for pid, line in mine if "stubborn.py" in line or "alive-exec" in line]

    assert len(left()) >= 5
    lab.monkey("kill", "job", juid)
    ended = lab.end(juid)
    assert (ended["state"], ended["reason"]) == ("CANCELLED", "CANCELLED_BY_USER")
    assert left() == []
    # A second time changes nothing.
    lab.monkey("kill", "job", juid, code=None)
    assert lab.job(juid)["state"] == "CANCELLED"


def test_a_job_that_waits_is_cancelled_and_never_runs(lab: Any, project: Any) -> None:
    folder = project({"a.sh": "echo ran\n"})
    cpus = max(host["cpus"] for host in lab.json("info", "provider", "lab")["hosts"])
    name = lab.host_names()[0]
    long = lab.start(folder, "-p", "lab", "-i", name, "--cpus", f"{cpus:g}", "sh", "-c", "sleep 300")
    waits = lab.start(folder, "-p", "lab", "-i", name, "--cpus", f"{cpus:g}", "sh", "a.sh")
    lab.until(long, {"DISPATCHING", "RUNNING"})
    assert lab.job(waits)["state"] == "QUEUED"
    lab.monkey("job", "cancel", waits, long)
    began = time.monotonic()
    assert lab.until(waits, "CANCELLED")["started_at"] is None
    assert lab.end(long)["state"] == "CANCELLED"
    assert time.monotonic() - began < 40
    assert lab.logs(waits) == ""


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _all() -> list[tuple[int, str]]:
    return [(int(entry.name), _line(int(entry.name))) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
