"""Starting and stopping the core from outside, for the CLI and the SDK."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from monkey.apiclient import Api, ConnectionLost, CoreNotRunning, Json, check_version
from monkey.errors import MonkeyError, UsageProblem
from monkey.paths import Home

# A cold start imports FastAPI and reads the state: 1-3 s here; a slow laptop with 100,000 jobs needs more.
_START_TIMEOUT_S = 60.0
# A clean stop ends a running playbook and writes the state.
_STOP_TIMEOUT_S = 60.0
_RIVAL_S = 20.0
_ASK_AGAIN_S = 2.0
# What `monkey.core` ends with when another core has the home.
_ALREADY_RUNNING = 3
_LOG_LINES = 8


def open_api(home: Home, *, start: bool) -> Api:
    """An API whose core answers and speaks our version.

    Args:
        home: the MONKEY_HOME.
        start: start a core when none runs.

    Raises:
        CoreNotRunning: none runs and `start` is false.
        OtherVersion: the one that runs is of another version.
        MonkeyError: it could not be started.
    """
    api = Api(home, revive=lambda: ensure_core(home))
    if start:
        ensure_core(home)
    else:
        check_version(api.status())
    return api


def ensure_core(home: Home) -> Json:
    """The status of the running core; starts one when none runs."""
    api = Api(home)
    try:
        return check_version(api.status())
    except (CoreNotRunning, ConnectionLost):
        return _start(home, api)


def _start(home: Home, api: Api) -> Json:
    try:
        home.create()
        log_size = home.core_log.stat().st_size if home.core_log.exists() else 0
        log = os.open(home.core_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageProblem("MONKEY_HOME", f"{home.root} cannot be used: {error.strerror or error}") from error
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "monkey.core", "--home", str(home.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home.root,
            start_new_session=True,
        )
    except OSError as error:
        raise MonkeyError(f"the core could not be started: {error}") from error
    finally:
        os.close(log)
    # A core that ends while a long SDK program lives must not stay behind as a zombie.
    threading.Thread(target=process.wait, name="monkey-core-reaper", daemon=True).start()
    began = time.monotonic()
    until = began + _START_TIMEOUT_S
    pause_s = 0.02
    while time.monotonic() < until:
        # Read before asking: a core that lost the race for the lock has ended, and the other one answers.
        ended = process.returncode
        try:
            return check_version(api.status())
        except (CoreNotRunning, ConnectionLost):
            pass
        if ended is not None:
            # The winner of a race may still be on its way to its socket.
            until = min(until, began + _RIVAL_S) if ended == _ALREADY_RUNNING else 0.0
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 0.2)
    how = "no answer" if process.returncode is None else f"it ended with {process.returncode}"
    raise MonkeyError(f"the core did not start ({how}); the end of {home.core_log}:\n{_tail(home.core_log, log_size)}")


def _tail(path: Path, since: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(since)
            text = file.read(1 << 20).decode("utf-8", "replace")
    except OSError as error:
        return f"  ({error})"
    lines = text.rstrip().splitlines()[-_LOG_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing was written)"


def stop_core(home: Home) -> bool:
    """Stops the core and waits until it is gone. False: none was running.

    Raises:
        MonkeyError: it is still there after a minute.
    """
    api = Api(home)
    try:
        pid = int(api.status()["pid"])
    except CoreNotRunning:
        return False
    until = time.monotonic() + _STOP_TIMEOUT_S
    asked_at = 0.0
    while _alive(pid):
        if time.monotonic() > until:
            raise MonkeyError(f"the core (pid {pid}) is still there after {_STOP_TIMEOUT_S:.0f} s; see {home.core_log}")
        if time.monotonic() - asked_at > _ASK_AGAIN_S:
            # Asked again while it answers: the first request may have been lost.
            with contextlib.suppress(ConnectionLost, CoreNotRunning):
                api.stop()
            asked_at = time.monotonic()
        time.sleep(0.05)
    return True


def died(home: Home) -> bool:
    """Whether the last core ended without a clean stop."""
    pid = _pid(home)
    return pid is not None and not _alive(pid)


def _pid(home: Home) -> int | None:
    try:
        return int(json.loads(home.core_json.read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
    except (OSError, IndexError):
        return False
    else:
        return state not in {"Z", "X"}
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
