"""What the core tells hosts about attempts, over their event connections: cancel, pause, resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from monkey.core.hosts import HostBoard
from monkey.core.live import host_key
from monkey.core.livehost import LiveHost
from monkey.errors import UsageProblem
from monkey.events import NotConnected
from monkey.jobs import Job


class Orders:
    """Says it now when the host answers; Follower says it again at the host's next hello, from the record.

    Args:
        board: the hosts.
        spawn: runs a coroutine as a task.
    """

    def __init__(self, board: HostBoard, spawn: Callable[[Any], None]) -> None:
        self._board = board
        self._spawn = spawn

    def give(self, op: str, job: Job) -> None:
        """Have the host do it to the current attempt, without waiting for an answer."""
        host = self._board.of(job)
        if host is not None:
            self.give_to(host, op, job["juid"], job["attempt"])

    def give_to(self, host: LiveHost, op: str, juid: str, attempt: int) -> None:
        """As `give`, for any attempt."""
        self._spawn(self._try(host, op, juid, attempt))

    async def _try(self, host: LiveHost, op: str, juid: str, attempt: int) -> None:
        # UsageProblem: the attempt has ended, or has not arrived yet.
        with contextlib.suppress(NotConnected, UsageProblem):
            await self._ask(host, op, juid, attempt)

    async def ask(self, op: str, job: Job) -> None:
        """Have the host do it and wait until it has.

        Raises:
            NotConnected: the host does not answer: whether it was done is unknown.
            UsageProblem: the host says that it cannot be done.
        """
        host = self._board.of(job)
        if host is None:
            raise NotConnected(host_key(job))
        await self._ask(host, op, job["juid"], job["attempt"])

    async def _ask(self, host: LiveHost, op: str, juid: str, attempt: int) -> None:
        if host.stream is None:
            raise NotConnected(host.key)
        reply = await host.stream.request({"op": op, "juid": juid, "attempt": attempt})
        if not reply.get("ok"):
            raise UsageProblem("job", str(reply.get("error")))
