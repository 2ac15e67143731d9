"""A main node whose core is killed again and again while jobs come in, and the count of what became of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from witness import Witness

from monkey.apiclient import Api, ConnectionLost, CoreNotRunning, Json
from monkey.paths import Home

_HERE = Path(__file__).resolve().parent
FINAL = {"SUCCEEDED", "FAILED", "FAILED_SETUP", "CANCELLED", "TIMED_OUT", "LOST"}
# Little, so that a hundred jobs go out in one wave.
_CPUS = 0.02


class Siege:
    """Cores in one home (a MonkeyHome of tests/conftest.py), one after the other, and jobs on provider local.

    Attributes:
        acknowledged: JUIDs that the API gave, by idempotency key; the key is the job's name, too.
    """

    def __init__(self, home: Any, witness: Witness) -> None:
        self.home = home
        self.witness = witness
        self.api = Api(Home(home.path))
        self.acknowledged: dict[str, str] = {}
        self.log = home.path.parent / f"{home.path.name}-cores.log"

    def start(self, *lethal: str) -> subprocess.Popen[bytes]:
        """Start a core: as it is, or with options of lethal_core.py."""
        program = [str(_HERE / "lethal_core.py"), *lethal] if lethal else ["-m", "monkey.core"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *program, "--home", str(self.home.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.home.env,
                cwd=self.home.path.parent,
                start_new_session=True,
            )

    def answers(self, core: subprocess.Popen[bytes], timeout_s: float = 30) -> Json:
        """Wait until this core answers; its status."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and core.poll() is None:
            with contextlib.suppress(CoreNotRunning, ConnectionLost):
                status = self.api.status()
                if status["pid"] == core.pid:
                    return status
            time.sleep(0.02)
        raise AssertionError(f"core {core.pid} does not answer (exit code {core.poll()})\n{self.tail()}")

    def life(self, lethal: list[str], patience_s: float) -> bool:
        """One life of a lethal core: True when it died at its point; else it is killed, ``patience_s`` after it is up.

        Raises AssertionError when it ended in any other way.
        """
        core = self.start(*lethal)
        try:
            until = time.monotonic() + 60
            up = False
            while core.poll() is None and time.monotonic() < until:
                if not up and self.home.core_pid() == core.pid:
                    up, until = True, time.monotonic() + patience_s
                time.sleep(0.005)
            code = core.poll()
            assert code in {None, -signal.SIGKILL}, f"core {lethal} ended with {code}\n{self.tail()}"
            assert up or code is not None, f"core {lethal} did not come up\n{self.tail()}"
            return code is not None
        finally:
            stop(core)

    def submission(self, key: str, *actions: Any, **fields: Any) -> Json:
        """A job that counts itself, then does ``actions`` (see witness.py)."""
        resources = {"cpus": fields.pop("cpus", _CPUS)}
        return {"command": self.witness.command(*actions), "name": key, "resources": resources, **fields}

    def submit(self, key: str, *actions: Any, **fields: Any) -> str:
        """Hand in a job and wait for the acknowledgement, over the deaths of cores."""
        until = time.monotonic() + 120
        while True:
            try:
                self.acknowledged[key] = str(self.api.submit(self.submission(key, *actions, **fields), key)["juid"])
                return self.acknowledged[key]
            except (ConnectionLost, CoreNotRunning):
                if time.monotonic() > until:
                    raise

    def all_over(self) -> bool:
        """Whether a core answers and every acknowledged job has ended."""
        try:
            counts = self.api.status()["jobs"]
        except (ConnectionLost, CoreNotRunning):
            return False
        return sum(counts.get(state, 0) for state in FINAL) >= max(sum(counts.values()), len(self.acknowledged))

    def until_over(self, timeout_s: float) -> bool:
        """Wait for the end of all jobs. False: some did not end in time."""
        until = time.monotonic() + timeout_s
        while not self.all_over():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def until_state(self, juid: str, state: str, timeout_s: float = 60) -> None:
        """Wait until a job is in a state."""
        until = time.monotonic() + timeout_s
        while (job := self.api.job(juid))["state"] != state:
            assert time.monotonic() < until, f"{juid} is {job['state']}: {job['message']}\n{self.tail()}"
            time.sleep(0.05)

    def settle(self, timeout_s: float = 90, submitter: Submitter | None = None) -> None:
        """A core as it is takes the rest of the submissions, finishes what there is, and stops as a user stops it."""
        core = self.start()
        try:
            self.answers(core)
            if submitter:
                submitter.finish()
            self.until_over(timeout_s)
            self.jobs = self.api.jobs()
        finally:
            stop(core, signal.SIGTERM)

    def figures(self) -> dict[str, int]:
        """After ``settle``: lost, twice, hurt and left, as ``fault.row`` takes them."""
        tally = self.witness.tally()
        by_juid = {job["juid"]: job for job in self.jobs}
        names = Counter(job["name"] for job in self.jobs)
        ended = [by_juid[juid] for juid in self.acknowledged.values() if juid in by_juid]
        lost = [juid for juid in self.acknowledged.values() if not _is_over(by_juid.get(juid))]
        silent = [job["juid"] for job in ended if _good(job) and f"{job['juid']}.{job['attempt']}" not in tally.ended]
        hurt = [j for j in ended if j["juid"] not in lost and (not _good(j) or tally.attempts_of(j["juid"]) != [1])]
        several = {name: count for name, count in names.items() if count > 1}
        figures = {
            "lost": len({*lost, *silent}),
            "twice": len(tally.twice) + sum(several.values()) - len(several),
            "hurt": len(hurt),
            "left": len(self.left()),
        }
        if any(figures.values()):
            told = [(j["juid"], j["state"], j["reason"], j["message"], j["attempt"]) for j in hurt[:3]]
            twice = sorted(tally.twice)
            sys.stderr.write(f"\nlost {lost[:5]} {silent[:5]}, twice {twice[:5]} {several}, hurt {told}\n")
        return figures

    def left(self, timeout_s: float = 10) -> list[int]:
        """Processes of this home that still run with the core stopped; the client's daemon may, it has no work."""
        until = time.monotonic() + timeout_s
        while (found := [p for p in self.home.processes() if not _is_daemon(p)]) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in found:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                sys.stderr.write(f"\nleft: {pid} {words.decode(errors='replace')[:300]}\n")
        return found

    def tail(self) -> str:
        """The last words of the cores, and the jobs that have not ended."""
        words = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        with contextlib.suppress(ConnectionLost, CoreNotRunning):
            live = [j for j in self.api.jobs() if j["state"] not in FINAL]
            told = [(j["juid"], j["name"], j["state"], j["reason"], j["message"]) for j in live[:5]]
            words += f"\n{len(live)} jobs have not ended, such as {told}"
        return words


class Submitter(threading.Thread):
    """Hands in jobs beside the kills, as many as ``allowed`` so far; a submission without an answer is repeated."""

    def __init__(self, siege: Siege, jobs: int, prefix: str = "j") -> None:
        super().__init__(name="submitter", daemon=True)
        self.allowed = 0
        self.error: Exception | None = None
        self._siege = siege
        self._keys = [f"{prefix}{n}" for n in range(jobs)]
        self._stopped = False

    def run(self) -> None:
        try:
            for n, key in enumerate(self._keys):
                while n >= self.allowed and not self._stopped:
                    time.sleep(0.01)
                if self._stopped:
                    return
                self._siege.submit(key, "sleep", 0.01 * (n % 10))
        except Exception as error:
            self.error = error

    def finish(self, timeout_s: float = 60) -> None:
        """Wait until everything is handed in; needs a core that answers."""
        self.allowed = len(self._keys)
        self.join(timeout_s)
        self._stopped = True
        assert self.error is None, f"a submission failed: {self.error!r}\n{self._siege.tail()}"
        assert not self.is_alive(), "not every job could be handed in"


def stop(core: subprocess.Popen[bytes], number: int = signal.SIGKILL, timeout_s: float = 30) -> int:
    """End a core and wait for it; its exit code."""
    if core.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(core.pid, number)
    try:
        return core.wait(timeout_s)
    except subprocess.TimeoutExpired:
        core.kill()
        return core.wait(5)


def _is_over(job: Json | None) -> bool:
    return job is not None and job["state"] in FINAL


def _good(job: Json) -> bool:
    return bool(job["state"] == "SUCCEEDED" and job["attempt"] == 1)


def _is_daemon(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"daemon" in words and any(word.endswith(b"monkey-client.pyz") for word in words)
    return True  # it has ended
