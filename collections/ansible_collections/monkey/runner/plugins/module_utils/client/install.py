"""Installing, starting, stopping and removing the client of a home; for the modules."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional

from ..monkeyfs.folders import remove
from . import bundle, control
from .attempt import FINAL, all_attempts
from .files import ClientError, read_json, write_atomic, write_json
from .spec import check_slots

# Everything that may stand in a home. A folder with anything else in it is not removed.
_OURS = (
    *("monkey-client.pyz", "version", "daemon.lock", "daemon.log", "daemon.log.old", "client.sock", "client.json"),
    *("slots.json", "journal", "store", "data", "envs", "attempts"),
)
_POLL_S = 0.05

# Where the clients of all cores live, each in a folder of its own; it goes with the last of them.
SHARED_FOLDER = ".monkey-client"


def expand(home: str) -> str:
    """The absolute path of a client home. Raises ClientError."""
    path = os.path.abspath(os.path.expanduser(home))
    if not home or path in ("/", os.path.expanduser("~")):
        raise ClientError(f"home: expected a folder for the client alone, got {home!r}")
    return path


def installed(home: str) -> Optional[str]:
    """The version that is installed, None when none is or its file is not what it should be."""
    try:
        with open(os.path.join(home, "version"), encoding="ascii") as handle:
            version = handle.read().strip()
        size = os.stat(os.path.join(home, control.PROGRAM)).st_size
    except (OSError, ValueError):
        return None
    return version if size else None


def install(home: str, check_only: bool = False) -> bool:
    """Have this version's program in the home; whether that changed something. Raises OSError."""
    data, version = bundle.build()
    path = os.path.join(home, control.PROGRAM)
    try:
        with open(path, "rb") as handle:
            same = handle.read() == data and installed(home) == version
    except OSError:
        same = False
    if same or check_only:
        return not same
    os.makedirs(home, 0o700, exist_ok=True)
    os.chmod(home, 0o700)
    write_atomic(path, data, durable=True, mode=0o700)
    write_atomic(os.path.join(home, "version"), version.encode("ascii") + b"\n", durable=True)
    return True


def set_slots(home: str, slots: Dict[str, Any], check_only: bool = False) -> bool:
    """Have these slots on the host; whether that changed something. Raises ClientError, OSError."""
    wanted = check_slots(slots)
    if not wanted:
        return False
    wanted = dict(read_json(os.path.join(home, "slots.json")) or {}, **wanted)
    if wanted == (read_json(os.path.join(home, "slots.json")) or {}):
        return False
    if not check_only:
        if control.running(home):
            control.call(home, {"op": "slots", "slots": wanted})
        else:
            write_json(os.path.join(home, "slots.json"), wanted, durable=True)
    return True


def start(home: str, check_only: bool = False) -> bool:
    """Have a daemon of the installed version run; whether that changed something. Raises ClientError."""
    now = control.running(home) if os.path.isdir(home) else None
    if now and now["version"] == installed(home):
        return False
    if check_only:
        return True
    if now:
        # Attempts go on under their keepers; the new daemon adopts them.
        control.shutdown(home)
    control.ensure_daemon(home)
    return True


def stop(home: str, check_only: bool = False) -> bool:
    """Have no daemon run; attempts go on under their keepers. Raises ClientError."""
    if not os.path.isdir(home) or not control.running(home):
        return False
    return True if check_only else control.shutdown(home)


def uninstall(home: str, timeout_s: float, check_only: bool = False) -> bool:
    """End all attempts, stop the daemon and remove the home. Raises ClientError, OSError."""
    if not os.path.lexists(home):
        return False
    foreign = sorted(name for name in os.listdir(home) if name not in _OURS)
    if foreign:
        raise ClientError(f"home: {home} holds {foreign[0]!r}, which is not the client's; it is not removed")
    if check_only:
        return True
    _end_all(home, timeout_s)
    control.shutdown(home)
    remove(home)
    above = os.path.dirname(home)
    if os.path.basename(above) == SHARED_FOLDER:
        try:
            os.rmdir(above)
        except OSError:
            # Another core's client lives there.
            pass
    return True


def _end_all(home: str, timeout_s: float) -> None:
    live = [attempt for attempt in all_attempts(home) if attempt.state() not in (*FINAL, "REMOVED")]
    for attempt in live:
        control.ask(home, {"op": "cancel", "juid": attempt.juid, "attempt": attempt.number})
    deadline = time.monotonic() + timeout_s
    while live:
        live = [attempt for attempt in live if attempt.exit() is None]
        if live and time.monotonic() > deadline:
            raise ClientError(f"{live[0].key} did not end within {timeout_s:g} s: see {live[0].folder}")
        time.sleep(_POLL_S if live else 0)
