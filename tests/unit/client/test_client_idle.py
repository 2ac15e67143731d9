"""A daemon that nobody needs leaves by itself, and is there again when somebody does."""

from __future__ import annotations

import subprocess
import sys
import time

from .conftest import Host, lives, until


def test_an_idle_daemon_leaves_and_the_next_job_finds_one(host: Host) -> None:
    host.kill_daemon()
    subprocess.run([sys.executable, host.program, "daemon", "--home", host.home, "--idle-exit-s", "0.5"], check=True)
    first = host.daemon_pid()
    attempt = host.launch("sleep", "1.2")
    host.running(attempt)
    time.sleep(0.8)
    assert host.daemon_pid() == first, "it must not leave while a job runs"
    assert host.ended(attempt)["state"] == "SUCCEEDED"
    until(lambda: not lives(first))
    again = host.launch("true")
    assert host.ended(again)["state"] == "SUCCEEDED"
