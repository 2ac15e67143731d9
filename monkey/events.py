"""Event readers: one connection a host, JSON lines both ways with the client's ``stream`` command.

The reader keeps the connection, and starts it anew with growing pauses when it ends. A lost connection says nothing
about jobs: the client keeps every event until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger("monkey.events")

_LINE_LIMIT_BYTES = 16 * 1024 * 1024
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
# The client sends a machine line every 10 s: three missed ones mean that nobody is there.
_SILENCE_S = 35.0


class Listener(Protocol):
    """Who hears what a host says; called in the event loop."""

    def on_hello(self, host: str, hello: dict[str, Any]) -> None:
        """The connection stands; ``hello`` lists the attempts that the client knows."""

    def on_event(self, host: str, event: dict[str, Any]) -> None:
        """A journalled event; it is acknowledged when this returns without an exception."""

    def on_log(self, host: str, juid: str, attempt: int, offset: int, data: bytes) -> bool:
        """Bytes of a log; False asks for them again from what has arrived."""

    def on_machine(self, host: str, machine: dict[str, Any]) -> None:
        """Load, memory, disk, GPUs."""

    def on_lost(self, host: str, message: str) -> None:
        """The connection ended or could not be made."""

    def log_offsets(self, host: str) -> dict[str, int]:
        """Bytes that have arrived of each log that is still growing, by ``JUID.n``."""


class NotConnected(Exception):
    """A request to a host whose connection does not stand."""


class HostStream:
    """The kept connection to one host.

    Args:
        host: key of the host (``provider/name``).
        argv: command that runs ``stream`` there.
        core_id: this main node's id.
        version: this core's version.
        listener: who hears it.
        explain: turns the transport's last words into a sentence.
    """

    def __init__(
        self,
        host: str,
        argv: list[str],
        *,
        core_id: str,
        version: str,
        listener: Listener,
        explain: Callable[[str], str] | None = None,
    ) -> None:
        self.host = host
        self.argv = argv
        self._core_id = core_id
        self._version = version
        self._listener = listener
        self._explain = explain or (lambda text: text)
        self._process: asyncio.subprocess.Process | None = None
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connected = False
        self.began_at = 0.0

    def start(self) -> None:
        """Keep the connection from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"stream {self.host}")

    def retry_now(self) -> None:
        """Do not wait out the pause."""
        self._again.set()

    async def stop(self) -> None:
        """End the connection; no job ends by it."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def request(self, order: dict[str, Any], timeout_s: float = 20.0) -> dict[str, Any]:
        """Ask the client for something (docs/interfaces.md, Stream) and wait for its answer.

        Raises:
            NotConnected: the connection does not stand, or ended before the answer: whether it was done is unknown.
        """
        if not self.connected:
            raise NotConnected(self.host)
        number = next(self._ids)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        self._send({**order, "id": number})
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError as error:
            raise NotConnected(self.host) from error
        finally:
            self._replies.pop(number, None)

    def _send(self, message: dict[str, Any]) -> None:
        if self._process and self._process.stdin and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            said_hello, words = False, ""
            try:
                said_hello, words = await self._once()
            except Exception as error:
                log.exception("stream of %s", self.host)
                words = str(error)
            self._listener.on_lost(self.host, self._explain(words))
            pause_s = _FIRST_PAUSE_S if said_hello else min(pause_s * 2, _LONGEST_PAUSE_S)
            self._again.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), pause_s)

    async def _once(self) -> tuple[bool, str]:
        """One connection from start to end: whether it stood, and the transport's last words."""
        # What the host lists in its hello is how things stood after this.
        self.began_at = asyncio.get_running_loop().time()
        process = await asyncio.create_subprocess_exec(
            *self.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT_BYTES,
            start_new_session=True,
        )
        self._process = process
        words = asyncio.create_task(_last_words(process))
        stood = False
        try:
            self._send(
                {
                    "op": "hello",
                    "core_id": self._core_id,
                    "version": self._version,
                    "log_offsets": self._listener.log_offsets(self.host),
                }
            )
            assert process.stdout
            while True:
                line = await asyncio.wait_for(process.stdout.readline(), _SILENCE_S)
                if not line:
                    break
                stood = self._take(json.loads(line)) or stood
        except TimeoutError:
            return stood, "connection timed out: the host has gone silent"
        finally:
            self.connected = False
            self._process = None
            for future in self._replies.values():
                if not future.done():
                    future.set_exception(NotConnected(self.host))
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 2)
                except TimeoutError:
                    process.kill()
                    await process.wait()
        return stood, await words

    def _take(self, message: dict[str, Any]) -> bool:
        kind = message.get("type")
        if kind == "hello":
            self.connected = True
            self._listener.on_hello(self.host, message)
            return True
        if "seq" in message:
            self._listener.on_event(self.host, message)
            self._send({"op": "ack", "seq": message["seq"]})
        elif kind == "log":
            data = base64.b64decode(message["data"])
            if not self._listener.on_log(
                self.host, str(message["juid"]), int(message["attempt"]), int(message["offset"]), data
            ):
                raise ValueError(f"a log of {self.host} has a gap: starting again from what has arrived")
        elif kind == "machine":
            self._listener.on_machine(self.host, message)
        elif kind == "reply":
            future = self._replies.get(int(message["id"]))
            if future and not future.done():
                future.set_result(message)
        return False


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr
    text = b""
    while chunk := await process.stderr.read(4096):
        text = (text + chunk)[-4096:]
    return text.decode("utf-8", "replace").strip()
