"""The core's API over its Unix socket, for the CLI and the SDK. Standard library only: it is imported by every command.

Every refusal becomes `UsageProblem` (exit code 2), everything else `MonkeyError` (exit code 1).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlencode

from monkey.errors import MonkeyError, UsageProblem
from monkey.paths import Home, socket_address
from monkey.version import __version__

# An answer that needs no machine comes at once; the core is busy when it does not.
_ANSWER_TIMEOUT_S = 60.0
# Checks and collects reach machines over SSH; their own time-outs are in the core.
_MACHINES_TIMEOUT_S = 900.0
# How long a lost answer is asked for again.
_RETRY_FOR_S = 20.0
_CHUNK = 1 << 16
_PACK_CHUNK = 1 << 18
_SHAS_PER_REQUEST = 20_000

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


class _Connection(http.client.HTTPConnection):
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


def _not_running(home: Home) -> CoreNotRunning:
    return CoreNotRunning("core", f"not running in {home.root} (`monkey core start` starts it)")


class _Chunked(io.RawIOBase):
    """What is written goes out as chunks of a request's body."""

    def __init__(self, connection: _Connection) -> None:
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


class Api:
    """One method per route of docs/interfaces.md. Thread-safe: each call has its own connection.

    Args:
        home: the MONKEY_HOME whose core is spoken to.
        revive: called when the core is gone in the middle of something that may be repeated; starts it or raises.
    """

    def __init__(self, home: Home, revive: Callable[[], object] | None = None) -> None:
        self.home = home
        self._revive = revive

    # -- plumbing ---------------------------------------------------------------------------------------------

    def _connect(self, timeout_s: float | None) -> _Connection:
        connection = _Connection(self.home, timeout_s)
        try:
            connection.connect()
        except PermissionError as error:
            raise UsageProblem("core", f"{self.home.socket} belongs to another user") from error
        except OSError as error:
            raise _not_running(self.home) from error
        return connection

    def _open(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = _ANSWER_TIMEOUT_S,
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        connection = self._connect(timeout_s)
        sent = {"X-Monkey-Version": __version__, "Content-Type": "application/json", **(headers or {})}
        try:
            try:
                connection.request(
                    method, "/v1" + path, body=None if body is None else json.dumps(body).encode(), headers=sent
                )
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused half way: the answer says why
            return connection, _answer(connection)
        except BaseException:
            connection.close()
            raise

    def _json(self, method: str, path: str, body: Json | None = None, **options: Any) -> Any:
        connection, response = self._open(method, path, body, **options)
        try:
            return _read_json(response, f"{method} {path}")
        finally:
            connection.close()

    def again(self, call: Callable[[], Any]) -> Any:
        """Calls `call`, which must be safe to repeat, until it is answered or the core stays away."""
        until = time.monotonic() + _RETRY_FOR_S
        while True:
            try:
                return call()
            except (ConnectionLost, CoreNotRunning):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
                if self._revive is not None:
                    self._revive()

    def _get(self, path: str, **options: Any) -> Any:
        return self._json("GET", path, **options)

    # -- core -------------------------------------------------------------------------------------------------

    def status(self) -> Json:
        """`pid version uptime_s home jobs` of the core, of whatever version."""
        return dict(self._get("/status", timeout_s=10.0))

    def stop(self) -> None:
        """Asks the core, of whatever version, to stop."""
        self._json("POST", "/stop")

    # -- jobs -------------------------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        state: str | None = None,
        provider: str | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> list[Json]:
        """Jobs, oldest first."""
        query = {"state": state, "provider": provider, "name": name, "limit": limit}
        return list(self._get("/jobs" + _query(query))["jobs"])

    def submit(self, submission: Json, key: str) -> Json:
        """Hands in a job and returns it, acknowledged. Repeated when the answer is lost: `key` makes it one job."""
        return dict(self.again(lambda: self._json("POST", "/jobs", submission, headers={"Idempotency-Key": key})))

    def plan(self, submission: Json) -> Json:
        """`provider host playbook send reason` of a job that is not handed in."""
        return dict(self._json("POST", "/plan", submission))

    def job(self, ident: str) -> Json:
        """A job by JUID or nickname."""
        return dict(self._get(f"/jobs/{_part(ident)}"))

    def wait(self, ident: str, revision: int, timeout_s: float = 30.0) -> Json:
        """The job as soon as its revision is above `revision`, or after `timeout_s`."""
        query = _query({"revision": revision, "timeout_s": timeout_s})
        return dict(self._get(f"/jobs/{_part(ident)}/wait{query}", timeout_s=timeout_s + _ANSWER_TIMEOUT_S))

    def log(self, ident: str, *, offset: int = 0, attempt: int | None = None, follow: bool = False) -> Iterator[bytes]:
        """The bytes of a job's log from `offset` on; with `follow` until the job has ended.

        Raises:
            ConnectionLost: when the core goes away before the end; what was yielded is good.
        """
        query = _query({"offset": offset, "attempt": attempt, "follow": int(follow)})
        connection, response = self._open(
            "GET", f"/jobs/{_part(ident)}/log{query}", timeout_s=None if follow else _ANSWER_TIMEOUT_S
        )
        yield from _chunks(connection, response)

    def act(self, ident: str, verb: str) -> Json:
        """`cancel`, `pause`, `resume` (the job) or `rerun` (the new job)."""
        return dict(self._json("POST", f"/jobs/{_part(ident)}/{verb}", {}))

    def collect(self, ident: str) -> list[Json]:
        """Fetches the persisted folders now: `[{name, path, tree}]`."""
        return list(self._json("POST", f"/jobs/{_part(ident)}/collect", {}, timeout_s=_MACHINES_TIMEOUT_S)["persist"])

    # -- monkeyfs ---------------------------------------------------------------------------------------------

    def missing(self, shas: Sequence[str]) -> list[str]:
        """Those of `shas` that monkeyfs lacks."""
        absent: list[str] = []
        for start in range(0, len(shas), _SHAS_PER_REQUEST):
            asked = list(shas[start : start + _SHAS_PER_REQUEST])
            absent += self._json("POST", "/fs/missing", {"sha256": asked})["missing"]
        return absent

    def put_pack(self, write: Callable[[BinaryIO], object]) -> Json:
        """Sends the pack that `write` writes into the file it is given: `{files, bytes}`."""
        connection = self._connect(_MACHINES_TIMEOUT_S)
        raw = _Chunked(connection)
        try:
            try:
                connection.putrequest("PUT", "/v1/fs/pack")
                for header, value in (
                    ("X-Monkey-Version", __version__),
                    ("Content-Type", "application/octet-stream"),
                    ("Transfer-Encoding", "chunked"),
                ):
                    connection.putheader(header, value)
                connection.endheaders()
                out = io.BufferedWriter(raw, _PACK_CHUNK)
                write(out)
                out.flush()
                connection.send(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused half way: the answer says why
            return dict(_read_json(_answer(connection), "PUT /fs/pack"))
        finally:
            raw.over = True
            connection.close()

    def put_tree(self, tree_id: str, tree: Json) -> None:
        """Sends a tree whose blobs monkeyfs has."""
        self._json("PUT", f"/fs/trees/{_part(tree_id)}", tree)

    def tree(self, tree_id: str) -> Json:
        """A tree."""
        return dict(self._get(f"/fs/trees/{_part(tree_id)}"))

    @contextlib.contextmanager
    def pack(self, shas: Sequence[str]) -> Iterator[BinaryIO]:
        """A pack of blobs, to be read as it comes."""
        connection, response = self._open(
            "POST", "/fs/pack", {"sha256": list(shas)}, timeout_s=_MACHINES_TIMEOUT_S
        )
        try:
            yield cast(BinaryIO, response)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise ConnectionLost(f"the core stopped answering ({type(error).__name__})") from error
        finally:
            connection.close()

    # -- providers --------------------------------------------------------------------------------------------

    def providers(self) -> list[Json]:
        """All providers with their hosts."""
        answer = self._get("/providers")
        return list(answer["providers"] if isinstance(answer, dict) else answer)

    def provider(self, name: str) -> Json:
        """One provider with its hosts."""
        return dict(self._get(f"/providers/{_part(name)}"))

    def probe(self, body: Json) -> list[Json]:
        """Host keys of hosts: `[{host, fingerprint, key_type, error}]`."""
        return list(self._json("POST", "/providers/probe", body, timeout_s=_MACHINES_TIMEOUT_S)["hosts"])

    def add_provider(self, body: Json) -> Json:
        """Checks and adds a provider."""
        return dict(self._json("POST", "/providers", body, timeout_s=_MACHINES_TIMEOUT_S))

    def remove_provider(self, name: str) -> None:
        """Takes a provider out of providers.yml."""
        self._json("DELETE", f"/providers/{_part(name)}", timeout_s=_MACHINES_TIMEOUT_S)

    def check_provider(self, name: str) -> Json:
        """Checks every host of a provider again."""
        return dict(self._json("POST", f"/providers/{_part(name)}/check", {}, timeout_s=_MACHINES_TIMEOUT_S))


def _part(text: str) -> str:
    """One part of a path; `.` and `..` would be taken for folders by what stands between."""
    return quote(text, safe="").replace(".", "%2E") if text in {".", ".."} else quote(text or " ", safe="")


def _query(values: dict[str, Any]) -> str:
    given = {key: value for key, value in values.items() if value is not None}
    return "?" + urlencode(given) if given else ""


def _chunks(connection: _Connection, response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        while data := response.read1(_CHUNK):
            yield data
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"the core stopped answering ({type(error).__name__})") from error
    finally:
        connection.close()


def _answer(connection: _Connection) -> http.client.HTTPResponse:
    try:
        response = connection.getresponse()
        if response.status >= 400:
            raise _refusal(response, response.read(1 << 20))
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"the core stopped answering ({type(error).__name__}: {error})") from error
    return response


def _read_json(response: http.client.HTTPResponse, asked: str) -> Any:
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
