"""Logs of attempts on the main node: appended as hosts send them, read by whoever follows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path


class LogBook:
    """One file per attempt, ``jobs/<JUID>/<attempt>/log``.

    Args:
        jobs_dir: folder of the jobs.
    """

    def __init__(self, jobs_dir: Path) -> None:
        self.jobs_dir = jobs_dir
        self._grew: dict[str, asyncio.Event] = {}

    def path(self, juid: str, attempt: int) -> Path:
        """The log's file, whether or not it is there yet."""
        return self.jobs_dir / juid / str(attempt) / "log"

    def size(self, juid: str, attempt: int) -> int:
        """Bytes that have arrived."""
        try:
            return self.path(juid, attempt).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, juid: str, attempt: int, offset: int, data: bytes) -> bool:
        """Take bytes that stand at ``offset`` on the host; what is here already is passed over.

        Returns:
            False when bytes before them are missing: the sender must start again from ``size()``.
        """
        path = self.path(juid, attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        have = self.size(juid, attempt)
        if offset > have:
            return False
        fresh = data[have - offset :]
        if fresh:
            with path.open("ab") as out:
                out.write(fresh)
            self.wake(juid)
        return True

    def note(self, juid: str, attempt: int, text: str) -> None:
        """Add lines of Monkey's own to a log that no host writes to (the attempt never got to one)."""
        path = self.path(juid, attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as out:
            out.write(text.encode("utf-8", "replace"))
        self.wake(juid)

    def sync(self, juid: str, attempt: int) -> None:
        """Put the log on disk for good: before its end is acknowledged to the host, which then may forget it."""
        try:
            descriptor = os.open(self.path(juid, attempt), os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def wake(self, juid: str) -> None:
        """Tell those who follow a job to look again."""
        event = self._grew.pop(juid, None)
        if event:
            event.set()

    async def changed(self, juid: str, timeout_s: float) -> None:
        """Wait until the job's log or state changed, at most ``timeout_s`` seconds."""
        event = self._grew.setdefault(juid, asyncio.Event())
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            pass
