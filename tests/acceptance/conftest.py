"""A lab that acceptance tests share: one main node, three ssh hosts added as a user would add them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MONKEY = Path(sys.executable).parent / "monkey"
FINAL = {"SUCCEEDED", "FAILED", "FAILED_SETUP", "CANCELLED", "TIMED_OUT", "LOST"}
Json = dict[str, Any]


class Lab:
    """A main node as its user sees it: everything goes through the command line."""

    def __init__(self, home: Any, hosts: list[Any]) -> None:
        self.home = home
        self.hosts = hosts

    def monkey(self, *args: str, cwd: Path | None = None, code: int | None = 0, timeout_s: float = 90) -> Any:
        """Run ``monkey ARGS`` and look at its exit code; None: any will do."""
        done = self.home.monkey(*args, cwd=cwd, timeout_s=timeout_s)
        if code is not None and done.returncode != code:
            core_log = (self.home.path / "core.log").read_text(errors="replace")[-3000:]
            words = f"monkey {' '.join(args)[:300]} exited {done.returncode}, expected {code}"
            raise AssertionError(f"{words}\n{done.stdout}\n{done.stderr}\n-- core.log\n{core_log}")
        return done

    def popen(self, *args: str, cwd: Path, **options: Any) -> subprocess.Popen[bytes]:
        """``monkey ARGS`` in the background, in a session of its own."""
        line = [str(MONKEY), *args]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(line, cwd=cwd, env=self.home.env, start_new_session=True, **pipes)

    def json(self, *args: str, cwd: Path | None = None) -> Any:
        """What ``monkey ARGS --json`` prints."""
        return json.loads(self.monkey(*args, "--json", cwd=cwd).stdout)

    def sent_last(self) -> Json:
        """What went to the host for the newest job; recorded when its playbook run is over: maybe after a short job."""
        deadline = time.monotonic() + 20
        while (sent := self.json("list", "jobs", "-n", "1")[-1]["sent"]) is None:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return dict(sent)

    def host_names(self) -> list[str]:
        """The hosts' names in the provider, in order."""
        return [host["name"] for host in self.json("info", "provider", "lab")["hosts"]]

    def start(self, folder: Path, *args: str) -> str:
        """``monkey run -d ARGS``: the JUID."""
        return str(self.monkey("run", "-d", *args, cwd=folder).stdout.strip())

    def job(self, juid: str) -> Json:
        """The job's record."""
        return dict(self.json("info", "job", juid))

    def until(self, juid: str, states: str | set[str], timeout_s: float = 60) -> Json:
        """Wait until the job is in one of the states; fails at once when it ended in another."""
        wanted = {states} if isinstance(states, str) else states
        deadline = time.monotonic() + timeout_s
        while True:
            job = self.job(juid)
            if job["state"] in wanted:
                return job
            if job["state"] in FINAL or time.monotonic() > deadline:
                raise AssertionError(f"{juid} is {job['state']}, not {wanted}: {job['reason']}: {job['message']}")
            time.sleep(0.1)

    def end(self, juid: str, timeout_s: float = 60) -> Json:
        """Wait for the end as a user does, with ``logs --follow``; the record then."""
        self.monkey("logs", "-f", juid, timeout_s=timeout_s)
        return self.until(juid, FINAL, timeout_s)

    def logs(self, juid: str) -> str:
        """The job's output."""
        return str(self.monkey("logs", juid).stdout)

    def log_says(self, juid: str, text: str, timeout_s: float = 30) -> str:
        """Wait until the output holds the text."""
        deadline = time.monotonic() + timeout_s
        while text not in (said := self.logs(juid)):
            assert time.monotonic() < deadline, f"{juid} never said {text!r}: {said!r}\n{self.job(juid)}"
            time.sleep(0.1)
        return said

    def host_of(self, job: Json) -> Any:
        """The test host that a job is on."""
        return next(host for host in self.hosts if host.address in job["host"] or host.name == job["host"])

    def client_home(self, host: Any) -> Path:
        """The client's folder on a host, seen from here; with /home of its own root file system."""
        core_id = (self.home.path / "core_id").read_text().strip()
        clients = Path(host.root) / "home" / host.user / ".monkey-client"
        return next(iter(sorted(clients.glob(f"{core_id}-*"))), clients / core_id)

    def processes_of_jobs(self, host: Any) -> list[tuple[int, str]]:
        """What runs on a host below its client's attempts, by its /proc: keepers, commands and whatever they left."""
        found = []
        for pid, line in host.processes(host.user):
            with contextlib.suppress(OSError):
                where = os.readlink(f"/proc/{pid}/cwd")
                variables = Path(f"/proc/{pid}/environ").read_bytes()
                if "/attempts/" in where or b"MONKEY_JUID=" in variables:
                    found.append((pid, line))
        return found

    def attempts_left(self, host: Any, timeout_s: float = 30) -> dict[str, list[str]]:
        """What is left of attempts on a host once it was cleared: {attempt: files beyond the tombstone}."""
        deadline = time.monotonic() + timeout_s
        while True:
            folder = self.client_home(host) / "attempts"
            found = {
                one.name: sorted(str(path.relative_to(one)) for path in one.rglob("*"))
                for one in folder.iterdir()
                if one.is_dir() and not (one / "removed").exists()
            }
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.2)

    def local_client_home(self) -> Path:
        """The client's folder of provider local."""
        return Path(self.home.path) / "client"


def make_project(folder: Path, files: dict[str, str]) -> Path:
    """A folder of code."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def lab(session_monkey_home: Any, ssh_hosts: list[Any]) -> Lab:
    """Three hosts, added with ``provider add --noinput``; and this machine as ``local``."""
    lab = Lab(session_monkey_home, ssh_hosts)
    flags = [word for host in ssh_hosts for word in ("--host", f"{host.user}@{host.address}:{host.port}")]
    flags += ["--key", str(ssh_hosts[0].key_file), "--noinput"]
    added = lab.monkey("provider", "add", "lab", "--type", "ssh", *flags)
    for host in ssh_hosts:
        assert host.address in added.stderr and "SHA256:" in added.stderr
    return lab


@pytest.fixture
def project(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Makes a folder of code: ``project({"a.py": "print(1)"})``."""

    def make(files: dict[str, str], name: str = "project") -> Path:
        return make_project(tmp_path / name, files)

    return make


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of examples/mnist, as a clone would have it."""
    ignore = shutil.ignore_patterns("output", "monkey-output", "__pycache__", ".monkey")
    return Path(shutil.copytree(REPOSITORY / "examples" / "mnist", tmp_path / "mnist", ignore=ignore))


@pytest.fixture
def ended() -> Iterator[Callable[[subprocess.Popen[bytes]], subprocess.Popen[bytes]]]:
    """Registers a process of this test, to be killed at its end if it still runs."""
    started: list[subprocess.Popen[bytes]] = []

    def register(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        started.append(process)
        return process

    yield register
    for process in started:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        process.communicate()
