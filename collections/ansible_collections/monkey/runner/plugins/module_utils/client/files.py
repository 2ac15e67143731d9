"""Small files that must be whole or absent, and clocks that nobody sets."""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any, Dict, Optional

from ..monkeyfs.blobs import sync_folder

FULL = (errno.ENOSPC, errno.EDQUOT)


class ClientError(ValueError):
    """What the client refuses or cannot do, in one sentence for a person."""


def boot_seconds() -> float:
    """Seconds since the machine booted, sleep included (CLOCK_BOOTTIME): steps of the wall clock do not change it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """The kernel's random id of this boot (proc(5), random/boot_id); empty where it cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_atomic(path: str, data: bytes, durable: bool = False, mode: int = 0o600) -> None:
    """Replace a file in one step; ``durable`` also survives a power cut. Raises OSError."""
    temporary = f"{path}.tmp{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def to_json(value: Any) -> bytes:
    """One line of JSON without its newline; lone surrogates (bytes that are not UTF-8) stay escaped."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def write_json(path: str, value: Any, durable: bool = False) -> None:
    """``write_atomic`` of a JSON value. Raises OSError."""
    write_atomic(path, to_json(value) + b"\n", durable)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A JSON object from a file; None when there is none or it cannot be read as one."""
    try:
        with open(path, "rb") as handle:
            value = json.loads(handle.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def touch(path: str, durable: bool = False) -> None:
    """An empty marker file: needs no block, so it can be made on a full disk too. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if durable:
        sync_folder(os.path.dirname(path))


def tail(path: str, limit_bytes: int = 4096, lines: int = 20) -> str:
    """The last lines of a text file, at most ``limit_bytes``; empty when there is none."""
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - limit_bytes))
            data = handle.read(limit_bytes)
    except OSError:
        return ""
    return "\n".join(data.decode("utf-8", "replace").splitlines()[-lines:])
