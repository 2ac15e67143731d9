"""The folder of one attempt: everything about it can be told from its files, by any process.

``spec.json`` accepted; ``start.json`` about to start (on disk before the fork); ``keeper.json`` a keeper began: written
first of all, under ``keeper.lock``, and from then on no keeper starts the command anew; ``command.json`` the command
runs; ``exit.json`` it ended. Markers need no block, so that a full disk does not hinder them: ``cancel``, ``pause``
(wanted), ``log_quota``, ``removed``. ``pause.json`` counts the pauses that were made (see pausing.py); ``lease``: see
leases.py.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ..monkeyfs.blobs import sync_folder
from ..monkeyfs.folders import remove
from .files import (
    FULL,
    boot_id,
    boot_seconds,
    read_json,
    to_json,
    touch,
    write_all,
    write_atomic,
    write_json,
)
from .spec import check_key

FINAL = ("SUCCEEDED", "FAILED", "FAILED_SETUP", "CANCELLED", "TIMED_OUT", "LOST")
# Blocks held back so that exit.json can be written when the disk is full.
_RESERVE_BYTES = 4096


class Attempt:
    """Attempt ``number`` of job ``juid`` in a client home."""

    def __init__(self, home: str, juid: str, number: int) -> None:
        check_key(juid, number)
        self.home = home
        self.juid = juid
        self.number = number
        self.key = f"{juid}.{number}"
        self.folder = os.path.join(home, "attempts", self.key)

    def path(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.folder, name)

    def has(self, name: str) -> bool:
        """Whether one of its files is there."""
        return os.path.lexists(self.path(name))

    def read(self, name: str) -> Dict[str, Any]:
        """One of its JSON files; empty when there is none."""
        return read_json(self.path(name)) or {}

    def exists(self) -> bool:
        """Whether the host has heard of it: launched, or cancelled before it arrived."""
        return os.path.isdir(self.folder)

    def spec(self) -> Dict[str, Any]:
        """Its spec; empty for one that was cancelled before it arrived or removed."""
        return self.read("spec.json")

    def exit(self) -> Optional[Dict[str, Any]]:
        """How it ended (the fields of the event ``ended``), None while it has not."""
        return read_json(self.path("exit.json"))

    def log_size(self) -> int:
        """Bytes of its log that may be sent: output beyond the quota is dropped."""
        try:
            size = os.stat(self.path("log")).st_size
        except OSError:
            return 0
        limit = self.log_limit()
        return size if limit is None or size <= limit else max(limit, self.log_end(size))

    def log_limit(self) -> Optional[int]:
        """Its log quota in bytes."""
        quota = self.spec().get("log_quota_mb")
        return None if quota is None else int(quota * 1024 * 1024)

    def log_end(self, size: int) -> int:
        """Where the notice about the quota ends, 0 before there is one."""
        try:
            with open(self.path("log_quota"), encoding="ascii") as handle:
                return min(size, int(handle.read() or 0))
        except (OSError, ValueError):
            return 0

    def state(self) -> str:
        """A final state, or QUEUED SETUP RUNNING PAUSED CANCELLING; REMOVED, or UNKNOWN to this host."""
        if not self.exists():
            return "UNKNOWN"
        if self.has("removed"):
            return "REMOVED"
        ended = self.exit()
        if ended is not None:
            return str(ended["state"])
        if self.has("cancel"):
            return "CANCELLING"
        return "PAUSED" if self.read("pause.json").get("paused") else self.phase()

    def phase(self) -> str:
        """How far it came, whether it is paused or not: QUEUED SETUP RUNNING."""
        if not self.has("start.json"):
            return "QUEUED"
        return "RUNNING" if self.has("command.json") else "SETUP"

    def told(self) -> Set[str]:
        """The events that were journalled (see ``tell``)."""
        try:
            with open(self.path("journalled"), encoding="ascii") as handle:
                return set(handle.read().split())
        except OSError:
            return set()

    def tell(self, tokens: List[str]) -> None:
        """Remember that these events are in the journal; ``ended`` durably, since it must not come twice."""
        descriptor = os.open(self.path("journalled"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, "".join(f"{token}\n" for token in tokens).encode("ascii"))
            if "ended" in tokens:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lease_until(self) -> Optional[float]:
        """When its lease ends, in seconds since boot (CLOCK_BOOTTIME); None when it has none."""
        try:
            with open(self.path("lease"), encoding="ascii") as handle:
                # How long the machine was off nobody knows: a lease of another boot has ended.
                same = handle.read() == boot_id()
                return os.fstat(handle.fileno()).st_mtime_ns / 1e9 if same else 0.0
        except FileNotFoundError:
            return None
        except OSError:
            return 0.0

    def set_lease(self, until: float) -> None:
        """Let its lease end at ``until``, for all who look at it from now on. Raises OSError."""
        _set_lease(self.path("lease"), until)

    def keeper_lock(self) -> Optional[int]:
        """The lock that a keeper holds while it lives: a descriptor, or None when a keeper has it. Raises OSError."""
        descriptor = os.open(self.path("keeper.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def finish(self, state: str, reason: str, message: str, **fields: Any) -> Dict[str, Any]:
        """Write exit.json, once and durably; a record that is there stays. Raises OSError."""
        before = self.exit()
        if before is not None:
            return before
        record: Dict[str, Any] = {"state": state, "reason": reason, "message": message, "exit_code": None}
        record.update({"signal": None, "started_at": None, "max_rss_mb": None})
        record.update(fields)
        record.update({"ended_at": time.time(), "log_size": self.log_size()})
        try:
            write_json(self.path("exit.json"), record, durable=True)
        except OSError as error:
            if error.errno not in FULL or not self.has("reserve"):
                raise
            self._finish_on_full_disk(record)
        return record

    def _finish_on_full_disk(self, record: Dict[str, Any]) -> None:
        record["message"] = record["message"][:2000]
        descriptor = os.open(self.path("reserve"), os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_all(descriptor, to_json(record).ljust(_RESERVE_BYTES - 1) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(self.path("reserve"), self.path("exit.json"))
        sync_folder(self.folder)

    def strip(self) -> None:
        """Remove what a finished attempt left; its name stays, so that it can never be launched again."""
        touch(self.path("removed"), durable=True)
        for name in os.listdir(self.folder):
            if name not in ("removed", "exit.json", "journalled"):
                remove(self.path(name))


def _set_lease(path: str, until: float) -> None:
    os.utime(path, ns=(int(until * 1e9), int(until * 1e9)))


def accept(home: str, spec: Dict[str, Any], order: int) -> Attempt:
    """Record a checked spec durably, all or nothing. Raises FileExistsError when the attempt is known, OSError."""
    attempt = Attempt(home, spec["juid"], spec["attempt"])
    if attempt.exists():
        raise FileExistsError(attempt.folder)
    fresh = os.path.join(home, "attempts", f".new-{attempt.key}")
    if os.path.lexists(fresh):
        remove(fresh)
    os.mkdir(fresh, 0o700)
    try:
        record = dict(spec, order=order, accepted_at=time.time())
        write_atomic(os.path.join(fresh, "reserve"), b" " * _RESERVE_BYTES)
        if spec["lease_s"] is not None:
            lease = os.path.join(fresh, "lease")
            write_atomic(lease, boot_id().encode("ascii"))
            _set_lease(lease, boot_seconds() + spec["lease_s"])
        write_json(os.path.join(fresh, "spec.json"), record, durable=True)
        # A folder with something in it is never replaced by rename(2): the same attempt is accepted once.
        os.rename(fresh, attempt.folder)
    except OSError:
        remove(fresh)
        raise
    sync_folder(os.path.join(home, "attempts"))
    return attempt


def bury(home: str, juid: str, number: int) -> Attempt:
    """Record that an attempt was cancelled before it arrived, so that it never starts. Raises OSError."""
    attempt = Attempt(home, juid, number)
    os.makedirs(attempt.folder, 0o700, exist_ok=True)
    touch(attempt.path("cancel"), durable=True)
    sync_folder(os.path.join(home, "attempts"))
    return attempt


def all_attempts(home: str) -> Iterator[Attempt]:
    """Every attempt of a home, in no order."""
    try:
        names = os.listdir(os.path.join(home, "attempts"))
    except OSError:
        return
    for name in names:
        parsed = parse_key(name)
        if parsed:
            yield Attempt(home, *parsed)


def parse_key(key: str) -> Optional[Tuple[str, int]]:
    """``JUID.n`` -> (JUID, n); None when it is not one."""
    juid, _dot, number = key.rpartition(".")
    try:
        return check_key(juid, int(number))
    except ValueError:
        return None
