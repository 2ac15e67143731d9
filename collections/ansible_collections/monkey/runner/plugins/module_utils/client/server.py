"""The daemon's socket: requests and subscribers, without ever waiting for one of them."""

from __future__ import annotations

import json
import selectors
import socket
import traceback
from typing import Any, Callable, Dict, List, Optional, Set

from . import control
from .files import ClientError, to_json
from .journal import Journal

# A subscriber gets more events when less than this waits to be read by it.
_BUFFER_BYTES = 256 * 1024

Handler = Callable[[Dict[str, Any]], Any]


class Connection:
    """One that asked. ``cursor``: the last event that a subscriber was sent, None for one that does not subscribe."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.waiting = bytearray()
        self.cursor: Optional[int] = None
        self.eof = False


class Server:
    """Answers on ``client.sock``. ``handle`` gets every request but subscriptions; what it returns is the result."""

    def __init__(self, home: str, selector: selectors.BaseSelector, handle: Handler, journal: Journal) -> None:
        self._selector = selector
        self._handle = handle
        self._journal = journal
        self._connections: Set[Connection] = set()
        self._listener = control.listen(home)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def in_use(self) -> bool:
        """Whether anybody is connected."""
        return bool(self._connections)

    def close(self) -> None:
        """Close all, here only: a keeper that was just forked does this too."""
        for connection in self._connections:
            connection.sock.close()
        self._connections.clear()
        self._listener.close()

    def _accept(self, _mask: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        connection = Connection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, lambda mask: self._ready(connection, mask))

    def _drop(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()

    def _ready(self, connection: Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                self._read(connection)
            if connection in self._connections:
                self._write(connection)
        except OSError:
            self._drop(connection)

    def _read(self, connection: Connection) -> None:
        data = connection.sock.recv(1 << 20)
        if not data:
            # It may have closed only its side for writing, and wait for the answer.
            connection.eof = True
            if connection.cursor is not None or not connection.waiting:
                self._drop(connection)
            return
        searched = len(connection.received)
        connection.received += data
        while True:
            end = connection.received.find(b"\n", searched)
            if end < 0:
                break
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            searched = 0
            self._request(connection, line)
            if connection not in self._connections:
                return
        if len(connection.received) > control.MAX_LINE_BYTES:
            self._drop(connection)

    def _request(self, connection: Connection, line: bytes) -> None:
        answer: Dict[str, Any] = {"ok": True}
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ClientError("a request is a JSON object")
            if "id" in request:
                answer["id"] = request["id"]
            if request.get("op") == "subscribe":
                connection.cursor = int(request.get("after", 0))
                answer["result"] = self._handle({"op": "ping"})
            else:
                answer["result"] = self._handle(request)
                if request.get("op") in ("wake", "ack"):
                    return
        except Exception as error:  # whatever one asks, the daemon stays for the others
            if not isinstance(error, ClientError):
                traceback.print_exc()
            answer["ok"] = False
            answer["error"] = str(error) or type(error).__name__
        connection.waiting += to_json(answer) + b"\n"

    def _write(self, connection: Connection) -> None:
        self._fill(connection)
        if connection.waiting:
            try:
                sent = connection.sock.send(connection.waiting)
                del connection.waiting[:sent]
            except BlockingIOError:
                pass
        if connection.eof and not connection.waiting:
            self._drop(connection)
            return
        more = connection.waiting or (connection.cursor is not None and self._journal.after(connection.cursor, 1))
        mask = 0 if connection.eof else selectors.EVENT_READ
        self._selector.modify(
            connection.sock,
            mask | (selectors.EVENT_WRITE if more else 0),
            lambda ready: self._ready(connection, ready),
        )

    def _fill(self, connection: Connection) -> None:
        if connection.cursor is None:
            return
        while len(connection.waiting) < _BUFFER_BYTES:
            events: List[Dict[str, Any]] = self._journal.after(connection.cursor, 200)
            if not events:
                return
            for event in events:
                connection.waiting += to_json(dict(event, **{"event": True})) + b"\n"
            connection.cursor = events[-1]["seq"]

    def publish(self) -> None:
        """There are new events: subscribers get them."""
        for connection in list(self._connections):
            if connection.cursor is not None:
                self._ready(connection, 0)
