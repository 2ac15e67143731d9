"""A client home in a temporary folder, with its real daemon, keepers and commands."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client import bundle, control
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import FINAL, Attempt, all_attempts
from ansible_collections.monkey.runner.plugins.module_utils.client.files import boot_seconds
from ansible_collections.monkey.runner.plugins.module_utils.client.processes import TOKEN

_counter = itertools.count(1)


def until(check: Callable[[], Any], timeout_s: float = 15.0) -> Any:
    """Wait until ``check`` is true; its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = check()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {check}")


def lives(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Stream:
    """The core's end of a stream."""

    def __init__(self, home: str, program: str, **hello: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, program, "stream", "--home", home], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.seen: list[dict[str, Any]] = []
        self._rest = b""
        self.say(op="hello", core_id="c", version="0", **hello)

    def say(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def read(self, timeout_s: float = 0.05) -> bool:
        """Take what has come; False at the end."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            return True
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.seen += [json.loads(line) for line in lines]
        return bool(data)

    def wait(self, check: Callable[[dict[str, Any]], bool], timeout_s: float = 15.0) -> dict[str, Any]:
        """The first message that ``check`` likes."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for message in self.seen:
                if check(message):
                    return message
            if not self.read():
                break
        raise AssertionError(f"not seen among {self.seen}")

    def events(self) -> list[dict[str, Any]]:
        return [message for message in self.seen if "seq" in message]

    def close(self) -> None:
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        while self.read(timeout_s=5.0):
            pass
        self.process.wait(10)
        if self.process.stdout:
            self.process.stdout.close()


class Host:
    """A client home, and what a core would ask of it."""

    def __init__(self, folder: Path) -> None:
        self.home = str(folder)
        self.program = os.path.join(self.home, control.PROGRAM)
        self._streams: list[Stream] = []
        os.makedirs(self.home, 0o700)
        data, self.version = bundle.build()
        Path(self.program).write_bytes(data)
        self.slots(cpus=64, memory_mb=10**6)

    def slots(self, **slots: Any) -> None:
        self.ask(op="slots", slots=slots)

    def ask(self, **request: Any) -> Any:
        return control.ask(self.home, request)

    def daemon_pid(self) -> int:
        running = control.running(self.home)
        assert running
        return int(running["pid"])

    def spec(self, *command: str, **more: Any) -> dict[str, Any]:
        return {"juid": f"t-{next(_counter)}", "attempt": 1, "command": list(command), "grace_s": 0.3, **more}

    def launch(self, *command: str, **more: Any) -> Attempt:
        spec = self.spec(*command, **more)
        answer = self.ask(op="launch", attempts=[spec])
        assert answer["accepted"] == [f"{spec['juid']}.{spec['attempt']}"]
        return Attempt(self.home, spec["juid"], spec["attempt"])

    def order(self, operation: str, attempt: Attempt) -> Any:
        return self.ask(op=operation, juid=attempt.juid, attempt=attempt.number)

    def renew(self, *attempts: Attempt, at: float | None = None, extra_s: float = 0) -> Any:
        at = boot_seconds() if at is None else at
        return self.ask(op="renew", at=at, attempts=[attempt.key for attempt in attempts], extra_s=extra_s)

    def keeper(self, attempt: Attempt) -> int:
        """The pid of its keeper."""
        return int(until(lambda: attempt.read("keeper.json"))["pid"])

    def running(self, attempt: Attempt) -> dict[str, Any]:
        """Wait for the command to run; its record."""
        return until(lambda: attempt.read("command.json"))

    def said(self, attempt: Attempt, text: str = "ready") -> str:
        """Wait for words in the log; the log."""
        return until(lambda: text in self.log(attempt) and self.log(attempt))

    def log(self, attempt: Attempt) -> str:
        try:
            return Path(attempt.path("log")).read_text(errors="surrogateescape")
        except OSError:
            return ""

    def ended(self, attempt: Attempt, timeout_s: float = 20.0) -> dict[str, Any]:
        return until(attempt.exit, timeout_s)

    def stream(self, **hello: Any) -> Stream:
        stream = Stream(self.home, self.program, **hello)
        self._streams.append(stream)
        return stream

    def journal(self) -> list[dict[str, Any]]:
        """All events that are not acknowledged, as a core hears them."""
        last = self.ask(op="ping")["last_seq"]
        stream = self.stream()
        stream.wait(lambda message: message.get("seq") == last)
        stream.close()
        return stream.events()

    def kill_daemon(self) -> None:
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(pid))

    def processes(self, attempt: Attempt) -> list[int]:
        """Whatever carries the attempt's token."""
        mark = f"{TOKEN}={attempt.read('start.json').get('token')}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                pass
        return [pid for pid in found if lives(pid)]

    def close(self) -> None:
        for stream in self._streams:
            if stream.process.poll() is None:
                stream.close()
        live = [a for a in all_attempts(self.home) if a.state() not in (*FINAL, "REMOVED", "UNKNOWN")]
        for attempt in live:
            self.order("cancel", attempt)
        for attempt in live:
            self.ended(attempt)
        control.shutdown(self.home)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    # As deep as homes may be: a socket's address has 108 bytes.
    made = Host(tmp_path / ("deep" * 20) / "client")
    yield made
    made.close()
