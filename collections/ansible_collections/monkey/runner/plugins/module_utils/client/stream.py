"""The stream: what the core starts on the host to hear of its attempts and to give orders.

Events come from the daemon, log bytes from the files. Nothing is kept here: cut at any point, the next stream goes on
from the acknowledged event and from the offsets that the core names.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import threading
import time
from typing import Any, Dict, List, Optional

from . import control, machine
from .attempt import FINAL, Attempt, parse_key
from .files import ClientError, boot_seconds, to_json
from .operations import listing

_LOG_POLL_S = 0.1
_MACHINE_EVERY_S = 10.0
_LOG_CHUNK_BYTES = 48 * 1024
# Less than this waits to be read by the core, or no more log is read.
_OUT_BYTES = 512 * 1024
_MAX_IN_BYTES = 64 * 1024 * 1024
_FORWARDED = ("cancel", "pause", "resume")


class _Log:
    """A log that is followed from ``offset``."""

    def __init__(self, attempt: Attempt, offset: int) -> None:
        self.attempt = attempt
        self.offset = offset
        self._limit: Optional[int] = None
        self._limit_known = False

    def read(self) -> bytes:
        """The next bytes beyond the offset, nothing when there are none."""
        path = self.attempt.path("log")
        try:
            size = os.stat(path).st_size
            if size <= self.offset:
                return b""
            if not self._limit_known:
                self._limit, self._limit_known = self.attempt.log_limit(), True
            if self._limit is not None and size > self._limit:
                size = max(self._limit, self.attempt.log_end(size))
            with open(path, "rb") as handle:
                handle.seek(self.offset)
                return handle.read(max(0, min(_LOG_CHUNK_BYTES, size - self.offset)))
        except OSError:
            return b""


class Stream:
    """One connection with a core, on two descriptors."""

    def __init__(self, home: str, version: str, source: int, sink: int) -> None:
        self._home = home
        self._version = version
        self._source = source
        self._sink = sink
        self._received = bytearray()
        self._out = bytearray()
        self._daemon: Optional[socket.socket] = None
        self._daemon_in = bytearray()
        self._cursor = 0
        self._acked = 0
        self._events: List[Dict[str, Any]] = []
        self._logs: Dict[str, _Log] = {}
        self._offsets: Dict[str, int] = {}
        self._greeted = False
        self._end = False
        self._next_log = 0.0
        self._machine: List[Dict[str, Any]] = []
        self._machine_read, self._machine_write = os.pipe()

    def run(self) -> None:
        """Until the end of the input. Raises ClientError when no daemon can be started."""
        os.set_blocking(self._sink, False)
        os.set_blocking(self._source, False)
        threading.Thread(target=self._measure, daemon=True).start()
        info = control.ask(self._home, {"op": "ping"})
        hello = {
            "type": "hello",
            "version": info["version"],
            "journal": info["journal"],
            "attempts": listing(self._home),
            "last_seq": info["last_seq"],
            "acked": info["acked"],
            "boot_s": boot_seconds(),
        }
        self._cursor = info["acked"]
        self._say(hello)
        try:
            while not self._end:
                self._turn()
        except BrokenPipeError:
            pass
        if self._daemon:
            self._daemon.close()

    def _turn(self) -> None:
        readers: List[Any] = [self._source, self._machine_read]
        if self._greeted and self._daemon is None:
            self._subscribe()
        if self._daemon is not None and len(self._events) < 1000:
            readers.append(self._daemon)
        wait_s = None
        if self._greeted and self._logs and len(self._out) < _OUT_BYTES:
            wait_s = max(0.0, self._next_log - time.monotonic())
        if self._events and len(self._out) < _OUT_BYTES:
            wait_s = 0.0
        ready, writable, _x = select.select(readers, [self._sink] if self._out else [], [], wait_s)
        if self._source in ready:
            self._listen()
        if self._daemon is not None and self._daemon in ready:
            self._hear_daemon()
        if self._machine_read in ready:
            os.read(self._machine_read, 64)
            # Every now and then, also when the core wants nothing: leases are the daemon's to enforce.
            control.continue_stopped(self._home)
            while self._machine:
                self._say(dict(self._machine.pop(0), type="machine", boot_s=boot_seconds()))
        if self._greeted:
            self._forward_events()
            if time.monotonic() >= self._next_log:
                self._forward_logs()
        if writable or self._out:
            self._flush()

    # --- out

    def _say(self, message: Dict[str, Any]) -> None:
        self._out += to_json(message) + b"\n"

    def _flush(self) -> None:
        try:
            sent = os.write(self._sink, self._out)
            del self._out[:sent]
        except BlockingIOError:
            pass

    def _measure(self) -> None:
        while True:
            self._machine.append(machine.now(self._home))
            os.write(self._machine_write, b"m")
            time.sleep(_MACHINE_EVERY_S)

    def _forward_events(self) -> None:
        while self._events and len(self._out) < _OUT_BYTES:
            event = self._events[0]
            key = f"{event['juid']}.{event['attempt']}"
            if event["type"] == "started" or event["type"] == "setup":
                self._follow(key)
            if event["type"] == "ended":
                # Its log is whole now, and all of it goes before the word that it ended.
                self._follow(key)
                if self._pump(self._logs[key]):
                    return
                del self._logs[key]
            self._events.pop(0)
            event.pop("event", None)
            self._say(event)

    def _follow(self, key: str) -> None:
        if key not in self._logs:
            parsed = parse_key(key)
            if parsed:
                self._logs[key] = _Log(Attempt(self._home, *parsed), self._offsets.get(key, 0))

    def _pump(self, log: _Log, chunks: int = 1_000_000) -> bool:
        """Send what a log has grown by; whether there is more than may be sent now."""
        while chunks and len(self._out) < _OUT_BYTES:
            data = log.read()
            if not data:
                return False
            self._say(
                {
                    "type": "log",
                    "juid": log.attempt.juid,
                    "attempt": log.attempt.number,
                    "offset": log.offset,
                    "data": base64.b64encode(data).decode("ascii"),
                }
            )
            log.offset += len(data)
            self._offsets[log.attempt.key] = log.offset
            chunks -= 1
        return True

    def _forward_logs(self) -> None:
        more = False
        for log in list(self._logs.values()):
            # One piece each, so that a log that is written fast does not hold back the others.
            more = self._pump(log, 1) or more
        self._next_log = time.monotonic() + (0.0 if more else _LOG_POLL_S)

    # --- the daemon

    def _subscribe(self) -> None:
        control.ensure_daemon(self._home)
        try:
            self._daemon = control.connect(self._home)
            self._daemon_in.clear()
            self._daemon.sendall(to_json({"op": "subscribe", "after": self._cursor}) + b"\n")
        except OSError:
            self._lost_daemon()
        if self._acked:
            self._send_ack()

    def _send_ack(self) -> None:
        """Pass the acknowledgement on; said again to each new daemon, since one may have died before it had it."""
        if self._daemon is not None:
            try:
                self._daemon.sendall(to_json({"op": "ack", "seq": self._acked}) + b"\n")
            except OSError:
                self._lost_daemon()

    def _lost_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
            self._daemon = None
        time.sleep(0.05)

    def _hear_daemon(self) -> None:
        try:
            data = self._daemon.recv(1 << 18) if self._daemon is not None else b""
        except OSError:
            data = b""
        if not data:
            self._lost_daemon()
            return
        self._daemon_in += data
        while True:
            end = self._daemon_in.find(b"\n")
            if end < 0:
                return
            message = json.loads(bytes(self._daemon_in[:end]))
            del self._daemon_in[: end + 1]
            if message.get("event") and message["seq"] > self._cursor:
                self._cursor = message["seq"]
                self._events.append(message)

    # --- in

    def _listen(self) -> None:
        try:
            data = os.read(self._source, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._end = True
            return
        self._received += data
        if len(self._received) > _MAX_IN_BYTES:
            raise ClientError("stream: a line of more than 64 MiB")
        while True:
            end = self._received.find(b"\n")
            if end < 0:
                return
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            if line.strip():
                self._order(line)

    def _order(self, line: bytes) -> None:
        order: Dict[str, Any] = {}
        try:
            order = json.loads(line)
            result = self._obey(order)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            self._reply(order, {"ok": False, "error": str(error) or type(error).__name__})
            return
        if order["op"] not in ("hello", "ack"):
            self._reply(order, {"ok": True, "result": result})

    def _reply(self, order: Any, answer: Dict[str, Any]) -> None:
        number = order.get("id") if isinstance(order, dict) else None
        self._say(dict(answer, type="reply", id=number))

    def _obey(self, order: Dict[str, Any]) -> Any:
        operation = order["op"]
        if operation == "hello":
            self._greet(order)
            return None
        if operation == "ping":
            return control.ask(self._home, {"op": "ping"})
        if operation == "ack":
            self._acked = max(self._acked, int(order["seq"]))
            self._send_ack()
            return None
        if operation in _FORWARDED:
            request = {"op": operation, "juid": order["juid"], "attempt": order["attempt"]}
            return control.ask(self._home, request)
        if operation == "renew":
            request = {"op": operation, "at": order["at"], "attempts": order["attempts"]}
            return control.ask(self._home, dict(request, extra_s=order.get("extra_s", 0)))
        raise ClientError(f"unknown op {operation!r}; known are hello, ack, ping, renew, {', '.join(_FORWARDED)}")

    def _greet(self, order: Dict[str, Any]) -> None:
        self._offsets = {key: int(value) for key, value in (order.get("log_offsets") or {}).items()}
        for item in listing(self._home):
            key = f"{item['juid']}.{item['attempt']}"
            # What ended and was acknowledged had its whole log sent before, unless the core says that it lacks some.
            if item["state"] not in FINAL or key in self._offsets:
                self._follow(key)
        self._greeted = True


def run(home: str, version: str) -> int:
    """The command ``stream``; its exit code."""
    Stream(home, version, 0, 1).run()
    return 0
