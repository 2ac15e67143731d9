"""The core is killed, started twice, and its answers are lost: no job is lost, none runs twice."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from siege import Siege, Submitter, stop

from monkey.apiclient import Api
from monkey.paths import Home

_WHERES = (
    ("write", "before"),
    ("write", "half"),
    ("write", "unsynced"),
    ("write", "synced"),
    ("change", "before"),
    ("change", "after"),
)
_EVENTS = ("launched:1:before", "event.accepted:{n}:before", "event.started:{n}:before", "event.ended:{n}:before")
_EVENTS += ("event.started:{n}:after", "event.ended:{n}:after")


def _random() -> random.Random:
    seed = int(os.environ.get("MONKEY_FAULT_SEED") or time.time_ns() % 1_000_000)
    sys.stderr.write(f"\nMONKEY_FAULT_SEED={seed}\n")
    return random.Random(seed)


def _besiege(
    siege: Siege, submitter: Submitter, jobs: int, points: list[list[str]], patience_s: Callable[[], float]
) -> tuple[int, int]:
    """One life of a core for each entry of ``points``, and one that finishes everything. Returns how many died at their
    point (the others were killed from outside, wherever they were), and how many jobs had ended by then."""
    by_itself = 0
    submitter.start()
    for n, options in enumerate(points, 1):
        submitter.allowed = max(submitter.allowed, math.ceil(jobs * n / len(points)))
        by_itself += siege.life(options, patience_s())
    ended = len(siege.witness.tally().ended)
    siege.settle(180, submitter)
    return by_itself, ended


def test_fault_core_killed_at_writes_and_changes(siege: Siege, fault: Any, long: bool) -> None:
    kills, jobs = (500, 2000) if long else (12, 30)
    dice = _random()
    points = []
    for n in range(kills):
        what, where = _WHERES[n % len(_WHERES)]
        # Each order of magnitude as often: most lives are short, and some get a wave out and follow it to its end.
        number = int(math.exp(dice.uniform(0, math.log(1200 if long else 60))))
        points.append(["--die", f"{what}:{number}:{where}"])
        if dice.random() < 0.5:
            points[-1].append("--unsynced-is-lost")
    submitter = Submitter(siege, jobs)
    by_itself, ended = _besiege(siege, submitter, jobs, points, lambda: dice.uniform(0.5, 8 if long else 2))
    assert by_itself >= kills // 4, f"only {by_itself} of {kills} cores died at their kill point"
    assert not long or ended >= jobs // 2, f"only {ended} of {jobs} jobs ended under fire"
    fault.row(
        fault="kill -9 of the core around every journal write and state change",
        done=f"{kills} kills ({by_itself} at their point), {jobs} jobs ({ended} ended under fire)",
        **siege.figures(),
    )


def test_fault_core_killed_between_start_and_record(siege: Siege, fault: Any, long: bool) -> None:
    kills = 50 if long else 3
    dice = _random()
    kinds = _EVENTS if long else ("launched:1:before", "event.started:{n}:before", "event.ended:{n}:before")
    points = [["--die", kinds[n % len(kinds)].format(n=dice.randint(1, 3))] for n in range(kills)]
    submitter = Submitter(siege, 5 * kills)
    # Each life gets jobs of its own, and time enough to start them.
    by_itself, ended = _besiege(siege, submitter, 5 * kills, points, lambda: 60.0)
    assert by_itself >= kills * 0.9, f"only {by_itself} of {kills} cores died at their kill point"
    fault.row(
        fault="kill -9 of the core between the start on the host and its record",
        done=f"{kills} kills ({by_itself} at their point), {5 * kills} jobs ({ended} ended under fire)",
        **siege.figures(),
    )


def test_sabotage_without_sync_acknowledged_jobs_are_lost(siege: Siege, fault: Any) -> None:
    core = siege.start("--unsynced-is-lost", "--without", "sync")
    siege.answers(core)
    for n in range(3):
        siege.submit(f"j{n}", "sleep", 0)
    stop(core)
    siege.settle(0)
    lost = siege.figures()["lost"]
    fault.sabotage(fault="sync of the journal", done=f"1 kill, {lost} of 3 jobs lost", caught=lost > 0)


def _pair(siege: Siege, folder: Path, *lethal: str) -> tuple[list[subprocess.Popen[bytes]], str]:
    """Start two cores at once. Returns those that run, once one of both has ended or both answer, and what is wrong."""
    logs = [folder / "first.log", folder / "second.log"]
    cores = []
    for log in logs:
        siege.log = log
        log.unlink(missing_ok=True)
        cores.append(siege.start(*lethal))
    until = time.monotonic() + 20
    while time.monotonic() < until and all(core.poll() is None for core in cores):
        if all("INFO monkey.core: core" in log.read_text() for log in logs):
            break
        time.sleep(0.02)
    running = [core for core in cores if core.poll() is None]
    refused = [(core, log) for core, log in zip(cores, logs, strict=True) if core.poll() is not None]
    if len(running) != 1:
        return running, f"{len(running)} of 2 cores run"
    core, log = refused[0]
    words = log.read_text()
    if core.returncode != 3 or words != f"monkey: core: another core runs in {siege.home.path}\n":
        return running, f"the second ended with {core.returncode}: {words}"
    siege.log = logs[cores.index(running[0])]
    siege.answers(running[0])
    return running, ""


def test_fault_two_cores_at_once(siege: Siege, tmp_path: Path, fault: Any, long: bool) -> None:
    pairs = 50 if long else 4
    for n in range(pairs):
        running, wrong = _pair(siege, tmp_path)
        try:
            assert not wrong, f"pair {n}: {wrong}"
            siege.submit(f"j{n}", "sleep", 0)
        finally:
            for core in running:
                stop(core, signal.SIGTERM if n % 4 == 3 else signal.SIGKILL)
    siege.settle()
    fault.row(fault="two cores at once", done=f"{2 * pairs} starts in pairs, {pairs} jobs", **siege.figures())


def test_sabotage_without_lock_two_cores_run(siege: Siege, tmp_path: Path, fault: Any) -> None:
    running, wrong = _pair(siege, tmp_path, "--without", "lock")
    for core in running:
        stop(core)
    fault.sabotage(fault="lock of the core", done=wrong or "1 pair", caught="2 of 2 cores run" in wrong)


class _LossyProxy(threading.Thread):
    """Stands between clients and the core, and loses the answer (all of it, or its second half) of the first call with
    each idempotency key: the core has done what was asked, the client does not know.
    """

    def __init__(self, home: Path, core: Path) -> None:
        super().__init__(name="lossy proxy", daemon=True)
        home.mkdir(mode=0o700)
        self._core = core
        self._heard: set[bytes] = set()
        self.dropped = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(home / "core.sock"))
        self._listener.listen(32)

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as core, contextlib.suppress(OSError):
                core.connect(str(self._core))
                self._one_call(client, core)

    def _one_call(self, client: socket.socket, core: socket.socket) -> None:
        head, _, body = _read(client).partition(b"\r\n\r\n")
        core.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
        answer = b"".join(iter(lambda: core.recv(65536), b""))
        key = next((line for line in head.split(b"\r\n") if line.lower().startswith(b"idempotency-key:")), b"")
        if key and key not in self._heard:
            self._heard.add(key)
            self.dropped += 1
            answer = answer[: len(answer) // 2] if self.dropped % 2 else b""
        client.sendall(answer)

    def close(self) -> None:
        """Take no more calls."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _read(client: socket.socket) -> bytes:
    """One request: its head, and as many bytes as that says."""
    request = b""
    while True:
        head, found, body = request.partition(b"\r\n\r\n")
        lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")]
        if found and len(body) >= sum(lengths):
            return request
        more = client.recv(65536)
        if not more:
            return request
        request += more


@pytest.fixture
def proxy(siege: Siege, tmp_path: Path) -> Iterator[_LossyProxy]:
    """A home that has nothing but the proxy's socket: ``tmp_path/proxy``."""
    between = _LossyProxy(tmp_path / "proxy", Home(siege.home.path).socket)
    between.start()
    yield between
    between.close()


def test_fault_answer_lost_after_submit(
    siege: Siege, proxy: _LossyProxy, tmp_path: Path, fault: Any, long: bool
) -> None:
    jobs = 200 if long else 10
    core = siege.start()
    siege.answers(core)
    api = Api(Home(tmp_path / "proxy"))
    try:
        for n in range(jobs):
            key = f"j{n}"
            siege.acknowledged[key] = str(api.submit(siege.submission(key), key)["juid"])
        assert proxy.dropped == jobs
        siege.until_over(60)
    finally:
        stop(core, signal.SIGTERM)
    siege.settle()
    assert len(siege.jobs) == jobs + 1
    fault.row(fault="a reply lost after submit, the client retries", done=f"{jobs} replies lost", **siege.figures())
