"""Whatever dies while a job runs, the job ends as it should, once, and its exit code is on record."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

# Runs once or shows that it ran twice; says so, waits to be let go, leaves with 7.
ONCE = r"""
import os, sys, time
os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
print("begun", flush=True)
for n in range(1200):
    if os.path.exists(sys.argv[1] + ".go"):
        break
    time.sleep(0.05)
print("leaving", flush=True)
sys.exit(7)
"""


class Once:
    """A job that notes on its machine that it runs, and waits. ``host``: None for this machine."""

    def __init__(self, lab: Any, folder: Path, tmp_path: Path, host: Any, name: str) -> None:
        self.lab, self.host = lab, host
        if host is None:
            self.mark = self.seen = tmp_path / f"mark-{name}"
            where = ["-p", "local"]
        else:
            self.mark = Path(f"/home/{host.user}/mark-{tmp_path.name}-{name}")
            self.seen = Path(str(host.root) + str(self.mark))
            where = ["-p", "lab", "-i", next(n for n in lab.host_names() if n in (host.address, host.name))]
        line = ["python3", "once.py", str(self.mark)]
        self.juid: str = lab.start(folder, *where, "--cpus", "0.1", *line)

    def begun(self) -> Any:
        self.lab.log_says(self.juid, "begun", timeout_s=60)
        return self.lab.until(self.juid, "RUNNING")

    def go(self) -> None:
        Path(f"{self.seen}.go").touch()

    def check(self) -> None:
        """It ran once, to its end, and all of that is on record."""
        job = self.lab.end(self.juid)
        assert (job["state"], job["reason"], job["exit_code"]) == ("FAILED", "NONZERO_EXIT", 7), job["message"]
        assert self.lab.logs(self.juid) == "begun\nleaving\n"
        assert job["attempt"] == 1 and len(job["attempts"]) == 1
        assert self.seen.exists()

    def close(self) -> None:
        for path in (self.seen, Path(f"{self.seen}.go")):
            path.unlink(missing_ok=True)


@pytest.fixture
def once(lab: Any, project: Any, tmp_path: Path) -> Any:
    """Hands in such a job: ``once(host)``."""
    folder = project({"once.py": ONCE})
    jobs: list[Once] = []

    def start(host: Any = None) -> Once:
        jobs.append(Once(lab, folder, tmp_path, host, str(len(jobs))))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def _daemon_pid(client_home: Path) -> int:
    return int(json.loads((client_home / "client.json").read_text())["pid"])


def test_the_client_is_killed_while_jobs_run(lab: Any, once: Any) -> None:
    host = lab.hosts[0]
    here, there = once(), once(host)
    here.begun()
    there.begun()
    local_pid, host_pid = _daemon_pid(lab.local_client_home()), _daemon_pid(lab.client_home(host))
    os.kill(local_pid, signal.SIGKILL)
    host.ssh(["kill", "-9", str(host_pid)])
    for job in (here, there):
        job.go()
    for job in (here, there):
        job.check()
    # Somebody took over: the record did not come from the one that was killed.
    assert _daemon_pid(lab.local_client_home()) != local_pid
    assert _daemon_pid(lab.client_home(host)) != host_pid


def test_the_job_ends_while_the_client_is_dead(lab: Any, once: Any) -> None:
    host = lab.hosts[0]
    job = once(host)
    job.begun()
    # Nobody may start the client again before the job has ended: the core is stopped first.
    lab.monkey("core", "stop")
    host.ssh(["kill", "-9", str(_daemon_pid(lab.client_home(host)))])
    job.go()
    deadline = time.monotonic() + 15
    while any("once.py" in line and str(job.mark) in line for _, line in host.processes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    lab.monkey("core", "start")
    job.check()


def test_the_core_is_killed_while_jobs_run_and_while_one_is_sent_out(lab: Any, once: Any) -> None:
    host = lab.hosts[1]
    here, there = once(), once(host)
    here.begun()
    there.begun()
    sent = once(host)  # acknowledged; whatever its playbook is at now dies half way
    time.sleep(1.0)
    pid = lab.home.core_pid()
    os.kill(pid, signal.SIGKILL)
    status = lab.json("core", "start")
    assert status["pid"] != pid
    assert lab.job(there.juid)["state"] == lab.job(here.juid)["state"] == "RUNNING"
    sent.begun()
    for job in (here, there, sent):
        job.go()
    for job in (here, there, sent):
        job.check()


@pytest.mark.parametrize("after_s", [0.2, 1.5])
def test_the_core_is_stopped_while_a_job_is_sent_out(lab: Any, once: Any, after_s: float) -> None:
    # Not on its way yet, and with a playbook half way: neither is the job's fault.
    job = once()
    lab.until(job.juid, "DISPATCHING")
    time.sleep(after_s)
    lab.monkey("core", "stop")
    lab.monkey("core", "start")
    job.begun()
    job.go()
    job.check()


def test_a_second_core_refuses_to_start(lab: Any) -> None:
    pid = lab.home.core_pid()
    done = subprocess.run(
        [sys.executable, "-m", "monkey.core", "--home", str(lab.home.path)],
        env=lab.home.env, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 3 and "another core runs" in done.stderr
    assert lab.home.core_pid() == pid


def test_a_cut_link_is_not_a_failed_job(lab: Any, once: Any) -> None:
    host = lab.hosts[2]
    job, silent = once(host), once(host)
    job.begun()
    silent.begun()
    host.cut()
    try:
        # It ends while nobody can hear it; the other one goes on.
        silent.go()
        deadline = time.monotonic() + 60
        while lab.job(job.juid)["reason"] != "HOST_UNREACHABLE":
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert lab.job(job.juid)["state"] == lab.job(silent.juid)["state"] == "RUNNING"
        assert host.address in lab.job(job.juid)["message"]
    finally:
        host.heal()
    silent.check()
    assert lab.job(job.juid)["state"] == "RUNNING"
    job.go()
    job.check()


def test_the_ssh_session_is_killed_on_the_host(lab: Any, once: Any) -> None:
    host = lab.hosts[2]
    job = once(host)
    job.begun()
    sessions = [pid for pid, line in host.processes(host.user) if line.startswith("sshd:")]
    assert sessions
    for pid in sessions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert lab.job(job.juid)["state"] == "RUNNING"
    job.go()
    job.check()
