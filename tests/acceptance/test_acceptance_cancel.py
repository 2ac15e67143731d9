"""Cancelling ends everything of a job, also what does its best to stay."""

from __future__ import annotations

import contextlib
import os
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


def test_no_process_of_a_cancelled_job_survives(lab: Any, project: Any) -> None:
    folder = project({"stubborn.py": STUBBORN})
    # On a host and here at once: both take the whole grace period.
    juids = {
        where: lab.start(folder, "-p", where, "--cpus", "0.1", "python3", "stubborn.py") for where in ("lab", "local")
    }
    for juid in juids.values():
        lab.log_says(juid, "all are there")
    host = lab.host_of(lab.job(juids["lab"]))

    def left(where: str) -> list[tuple[int, str]]:
        running = host.processes("researcher") if where == "lab" else _here(str(lab.home.path))
        return [(pid, line) for pid, line in running if "stubborn.py" in line or "alive-exec" in line]

    assert [len(left(where)) for where in juids] == [5, 5]
    lab.monkey("kill", "job", *juids.values())
    for where, juid in juids.items():
        job = lab.end(juid)
        assert (job["state"], job["reason"]) == ("CANCELLED", "CANCELLED_BY_USER")
        assert left(where) == []
    # A second time changes nothing.
    lab.monkey("kill", "job", juids["lab"], code=None)
    assert lab.job(juids["lab"])["state"] == "CANCELLED"


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


def _here(home: str) -> list[tuple[int, str]]:
    """Processes of this machine that work below the home or have it in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if home in line or os.readlink(entry / "cwd").startswith(home):
                    found.append((int(entry.name), line))
    return found
