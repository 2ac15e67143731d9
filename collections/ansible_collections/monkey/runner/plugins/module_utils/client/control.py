"""Asking the daemon of a home: one JSON line each way on ``client.sock``, and starting one when none runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, Optional

from .files import ClientError, boot_id, read_json, to_json
from .processes import look, send

PROGRAM = "monkey-client.pyz"
_SOCKET = "client.sock"
_START_TIMEOUT_S = 30.0
# While an answer is awaited the daemon is looked at this often: it may be stopped.
_LOOK_AGAIN_S = 1.0
# A launch of a thousand attempts with 100 kB of arguments each still fits.
MAX_LINE_BYTES = 256 * 1024 * 1024


def _reach(folder: int) -> str:
    # A socket's address has 108 bytes at most (unix(7)): this names a deep home with few.
    return f"/proc/self/fd/{folder}/{_SOCKET}"


def listen(home: str) -> socket.socket:
    """The daemon's socket, for its user alone. Raises OSError."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path = os.path.join(home, _SOCKET)
        if os.path.lexists(path):
            os.unlink(path)
        server.bind(_reach(folder))
        os.chmod(path, 0o600)
        server.listen(128)
        server.setblocking(False)
    except OSError:
        server.close()
        raise
    finally:
        os.close(folder)
    return server


def connect(home: str, timeout_s: Optional[float] = 30.0) -> socket.socket:
    """A connection to the daemon. Raises OSError."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout_s)
        client.connect(_reach(folder))
    except OSError:
        client.close()
        raise
    finally:
        os.close(folder)
    return client


def wake(home: str, key: str) -> None:
    """Tell the daemon, if one listens, that an attempt's files changed; never waits for it."""
    try:
        with connect(home, timeout_s=0.0) as client:
            client.sendall(to_json({"op": "wake", "key": key}) + b"\n")
    except OSError:
        pass


def call(home: str, request: Dict[str, Any], timeout_s: float = 120.0) -> Any:
    """The daemon's answer. Raises ClientError when it refuses, OSError when none answers."""
    deadline = time.monotonic() + timeout_s
    continue_stopped(home)
    with connect(home, timeout_s) as client:
        client.sendall(to_json(request) + b"\n")
        received = []
        while True:
            client.settimeout(max(0.001, min(_LOOK_AGAIN_S, deadline - time.monotonic())))
            try:
                data = client.recv(1 << 16)
            except socket.timeout:
                if time.monotonic() >= deadline:
                    raise
                continue_stopped(home)
                continue
            if data:
                received.append(data)
            if not data or data.endswith(b"\n"):
                break
    line = b"".join(received)
    if not line.endswith(b"\n"):
        raise ConnectionError("The client's daemon ended before it answered.")
    answer = json.loads(line)
    if not answer.get("ok"):
        raise ClientError(str(answer.get("error")))
    return answer.get("result")


def continue_stopped(home: str) -> bool:
    """Let the daemon of a home go on if it was stopped (SIGSTOP), since it enforces leases; whether it was."""
    about = read_json(os.path.join(home, "client.json")) or {}
    pid = about.get("pid")
    # Another process may have that number now, in another boot with the same start time too.
    if not isinstance(pid, int) or about.get("boot") != boot_id():
        return False
    process = look(pid)
    if process is None or process.start != about.get("start") or process.state != "T":
        return False
    return send((pid, process.start), signal.SIGCONT)


def running(home: str) -> Optional[Dict[str, Any]]:
    """What the daemon says of itself; None when none runs."""
    try:
        result = call(home, {"op": "ping"}, timeout_s=10.0)
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def ensure_daemon(home: str) -> bool:
    """Start the daemon when none runs; whether it was started. Raises ClientError."""
    if running(home):
        return False
    program = os.path.join(home, PROGRAM)
    if not os.path.isfile(program):
        raise ClientError(f"There is no client in {home}: install it first (role client, module monkey.runner.client).")
    try:
        done = subprocess.run(
            [sys.executable or "python3", program, "daemon", "--home", home],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            timeout=_START_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ClientError(f"The client's daemon did not start ({error}): see {home}/daemon.log.") from error
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ClientError(f"The client's daemon did not start ({' '.join(last)}): see {home}/daemon.log.")
    return True


def ask(home: str, request: Dict[str, Any], timeout_s: float = 120.0) -> Any:
    """``call``, with the daemon started when none runs, and again when it died before it answered.

    Every request may be repeated: a known attempt is not launched again. Raises ClientError.
    """
    for again in (True, True, False):
        ensure_daemon(home)
        try:
            return call(home, request, timeout_s)
        except OSError as error:
            if not again:
                raise ClientError(f"The client's daemon does not answer ({error}): see {home}/daemon.log.") from error
            time.sleep(0.1)
    return None


def shutdown(home: str, timeout_s: float = 20.0) -> bool:
    """Stop the daemon; its attempts go on under their keepers. Whether one ran. Raises ClientError when it stays."""
    before = running(home)
    if before is None:
        return False
    try:
        call(home, {"op": "shutdown"}, timeout_s)
    except OSError:
        pass
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        now = running(home)
        if now is None or now["pid"] != before["pid"]:
            return True
        time.sleep(0.02)
    raise ClientError(f"The client's daemon (pid {before['pid']}) does not stop: see {home}/daemon.log.")
