"""HTTP on the core's Unix socket: connections, what is sent in chunks, and refusals as exceptions."""

from __future__ import annotations

import http.client
import io
import json
import socket
from collections.abc import Iterator
from typing import Any

from monkey.errors import MonkeyError, UsageProblem
from monkey.paths import Home, socket_address
from monkey.version import __version__

_CHUNK = 1 << 16

Json = dict[str, Any]


class CoreNotRunning(UsageProblem):
    """Nobody listens on the core's socket."""


class OtherVersion(UsageProblem):
    """The core that runs is of another version than this program."""

    def __init__(self, told: str) -> None:
        super().__init__("core", f"{told}; `monkey core stop` lets the next command start the right one")


def check_version(status: Json) -> Json:
    """Returns the status of a core that speaks our version; raises OtherVersion otherwise."""
    if status["version"] != __version__:
        raise OtherVersion(f"the core that runs is version {status['version']}, this monkey is version {__version__}")
    return status


class ConnectionLost(MonkeyError):
    """The core went away before its answer was complete; the request may or may not have been done."""


class Connection(http.client.HTTPConnection):
    """One HTTP connection to the core of a MONKEY_HOME; `timeout_s` None: as long as it takes."""

    def __init__(self, home: Home, timeout_s: float | None) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._home = home

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            with socket_address(self._home.socket) as address:
                self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise


class ChunkedBody(io.RawIOBase):
    """What is written goes out as chunks of a request's body."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.over = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        # A buffer above is flushed once more when it is thrown away; http.client would open a new connection for that.
        if piece and not self.over:
            try:
                self._connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            except TimeoutError as error:
                raise ConnectionLost("the core takes no more bytes") from error
        return len(piece)


def chunks(connection: Connection, response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The bytes of an answer as they come, then the connection is closed. Raises ConnectionLost before its end."""
    try:
        while data := response.read1(_CHUNK):
            yield data
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"the core stopped answering ({type(error).__name__})") from error
    finally:
        connection.close()


def answer(connection: Connection) -> http.client.HTTPResponse:
    """The answer to what was asked; a refusal is raised as UsageProblem or MonkeyError."""
    try:
        response = connection.getresponse()
        if response.status >= 400:
            raise _refusal(response, response.read(1 << 20))
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"the core stopped answering ({type(error).__name__}: {error})") from error
    return response


def read_json(response: http.client.HTTPResponse, asked: str) -> Any:
    """The answer's body. Raises ConnectionLost, MonkeyError."""
    try:
        return json.loads(response.read() or b"{}")
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"the core stopped answering ({type(error).__name__}: {error})") from error
    except ValueError as error:
        raise MonkeyError(f"the core's answer to {asked} is not JSON") from error


def _refusal(response: http.client.HTTPResponse, body: bytes) -> Exception:
    try:
        told = json.loads(body)["error"]
        field, message = str(told.get("field") or "request"), str(told["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        field, message = "request", body.decode("utf-8", "replace").strip()[:300] or f"HTTP {response.status}"
    if response.status == 409 and field == "version":
        return OtherVersion(message)
    # 507: the core's disk is full, which is the user's to solve like a wrong argument.
    if response.status < 500 or response.status == 507:
        return UsageProblem(field, message)
    return MonkeyError(f"{field}: {message}")
