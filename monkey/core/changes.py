"""Recorded changes, passed on to whoever listens: each one that adds to a job's history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from monkey.jobs import Job

Heard = asyncio.Queue[Job | None]
# Who does not read for so many changes is let go: it starts again and reads the histories.
_KEPT = 10_000


class Changes:
    """Who listens to changes."""

    def __init__(self) -> None:
        self._listeners: dict[Heard, str | None] = {}

    @contextmanager
    def listen(self, juid: str | None) -> Iterator[Heard]:
        """Hear the changes of a job, or of all; None in the queue is the end."""
        heard: Heard = asyncio.Queue()
        self._listeners[heard] = juid
        try:
            yield heard
        finally:
            self._listeners.pop(heard, None)

    def tell(self, job: Job) -> None:
        """A change that is in the job's history was recorded."""
        for heard, juid in list(self._listeners.items()):
            if juid in (None, job["juid"]):
                if heard.qsize() >= _KEPT:
                    self._listeners.pop(heard)
                    heard.put_nowait(None)
                else:
                    heard.put_nowait(job)

    def close(self) -> None:
        """No more changes come."""
        for heard in self._listeners:
            heard.put_nowait(None)
