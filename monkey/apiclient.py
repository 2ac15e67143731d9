"""The core's API over its Unix socket, for the CLI and the SDK. Standard library only: it is imported by every command.

Every refusal becomes `UsageProblem` (exit code 2), everything else `MonkeyError` (exit code 1).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlencode

from monkey.errors import UsageProblem
from monkey.paths import Home
from monkey.version import __version__
from monkey.wire import (
    ChunkedBody,
    Connection,
    ConnectionLost,
    CoreNotRunning,
    Json,
    OtherVersion,
    answer,
    check_version,
    chunks,
    read_json,
)

__all__ = ["Api", "ConnectionLost", "CoreNotRunning", "Json", "OtherVersion", "check_version"]

# An answer that needs no machine comes at once; the core is busy when it does not.
_ANSWER_TIMEOUT_S = 60.0
# Checks and collects reach machines over SSH; their own time-outs are in the core.
_MACHINES_TIMEOUT_S = 900.0
# How long a lost answer is asked for again.
_RETRY_FOR_S = 20.0
_PACK_CHUNK = 1 << 18
_SHAS_PER_REQUEST = 20_000


def _not_running(home: Home) -> CoreNotRunning:
    return CoreNotRunning("core", f"not running in {home.root} (`monkey core start` starts it)")


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

    def _connect(self, timeout_s: float | None) -> Connection:
        connection = Connection(self.home, timeout_s)
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
    ) -> tuple[Connection, http.client.HTTPResponse]:
        connection = self._connect(timeout_s)
        sent = {"X-Monkey-Version": __version__, "Content-Type": "application/json", **(headers or {})}
        try:
            try:
                connection.request(
                    method, "/v1" + path, body=None if body is None else json.dumps(body).encode(), headers=sent
                )
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused half way: the answer says why
            return connection, answer(connection)
        except BaseException:
            connection.close()
            raise

    def _json(self, method: str, path: str, body: Json | None = None, **options: Any) -> Any:
        connection, response = self._open(method, path, body, **options)
        try:
            return read_json(response, f"{method} {path}")
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

    def _stream(self, path: str, *, timeout_s: float | None) -> Iterator[bytes]:
        connection, response = self._open("GET", path, timeout_s=timeout_s)
        yield from chunks(connection, response)

    # -- core -------------------------------------------------------------------------------------------------

    def status(self) -> Json:
        """`pid version uptime_s home jobs` of the core, of whatever version."""
        return dict(self._get("/status", timeout_s=10.0))

    def stop(self) -> None:
        """Asks the core, of whatever version, to stop."""
        self._json("POST", "/stop")

    # -- scheduler and record ---------------------------------------------------------------------------------

    def scheduler(self) -> Json:
        """`policy policies queued waiting hosts`: how jobs are placed, and what waits for what."""
        return dict(self._get("/scheduler"))

    def set_policy(self, name: str) -> Json:
        """Has jobs placed by another policy; as `scheduler`."""
        return dict(self._json("PUT", "/scheduler", {"policy": name}))

    def state(self) -> Json:
        """`jobs documents seq state_bytes journal_bytes full` of the record that the core holds."""
        return dict(self._get("/state"))

    def state_compact(self) -> Json:
        """Has the core write its record anew, without history; as `state`, afterwards."""
        return dict(self._json("POST", "/state/compact", {}, timeout_s=_MACHINES_TIMEOUT_S))

    def state_export(self) -> Iterator[bytes]:
        """The record as it stands now, to be written into a file.

        Raises:
            ConnectionLost: when the core goes away before the end; what was yielded is then of no use.
        """
        yield from self._stream("/state/export", timeout_s=_MACHINES_TIMEOUT_S)

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
        path = f"/jobs/{_part(ident)}/log{query}"
        yield from self._stream(path, timeout_s=None if follow else _ANSWER_TIMEOUT_S)

    def act(self, ident: str, verb: str) -> Json:
        """`cancel`, `pause`, `resume`, `reset` (the job) or `rerun` (the new job)."""
        return dict(self._json("POST", f"/jobs/{_part(ident)}/{verb}", {}))

    def change(self, ident: str, fields: Json) -> Json:
        """Changes `priority`, `depends_on` or `max_parallel` of a queued job; the job."""
        return dict(self._json("PATCH", f"/jobs/{_part(ident)}", fields))

    def rerun_failed(self, *, provider: str | None = None, name: str | None = None) -> list[Json]:
        """Runs again what failed and was not run again yet: the new jobs."""
        body = {"failed": True, "provider": provider, "name": name}
        return list(self._json("POST", "/jobs/rerun", body)["jobs"])

    def explain(self, ident: str) -> Json:
        """`juid state sentences[{at, text}]`: why a job is where it is."""
        return dict(self._get(f"/jobs/{_part(ident)}/explain"))

    def events(self, *, job: str | None = None, limit: int | None = None, follow: bool = False) -> Iterator[Json]:
        """Recorded changes, oldest first: the newest `limit`; with `follow` also those to come.

        Raises:
            ConnectionLost: when the core goes away before the end; what was yielded is good.
        """
        query = _query({"job": job, "limit": limit, "follow": int(follow)})
        rest = b""
        for data in self._stream(f"/events{query}", timeout_s=None if follow else _ANSWER_TIMEOUT_S):
            *lines, rest = (rest + data).split(b"\n")
            yield from (dict(json.loads(line)) for line in lines if line.strip())

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
        raw = ChunkedBody(connection)
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
            return dict(read_json(answer(connection), "PUT /fs/pack"))
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
        return list(self._get("/providers")["providers"])

    def provider(self, name: str) -> Json:
        """One provider with its hosts."""
        return dict(self._get(f"/providers/{_part(name)}"))

    def probe(self, body: Json) -> list[Json]:
        """Host keys of hosts: `[{host, fingerprint, key_type, error}]`."""
        return list(self._json("POST", "/providers/probe", body, timeout_s=_MACHINES_TIMEOUT_S)["hosts"])

    def add_provider(self, body: Json) -> Json:
        """Checks and adds a provider."""
        return dict(self._json("POST", "/providers", body, timeout_s=_MACHINES_TIMEOUT_S))

    def remove_provider(self, name: str) -> dict[str, str]:
        """Takes a provider out of providers.yml; hosts that still hold the client, each with the reason."""
        gone = self._json("DELETE", f"/providers/{_part(name)}", timeout_s=_MACHINES_TIMEOUT_S)
        return dict(gone.get("left") or {})

    def check_provider(self, name: str) -> Json:
        """Checks every host of a provider again."""
        return dict(self._json("POST", f"/providers/{_part(name)}/check", {}, timeout_s=_MACHINES_TIMEOUT_S))

    def drain(self, name: str, host: str, reason: str = "") -> Json:
        """Gives a host no further jobs; the provider."""
        return dict(self._json("POST", f"/providers/{_part(name)}/hosts/{_part(host)}/drain", {"reason": reason}))

    def resume_host(self, name: str, host: str) -> Json:
        """Gives a drained host jobs again; the provider."""
        return dict(self._json("POST", f"/providers/{_part(name)}/hosts/{_part(host)}/resume", {}))


def _part(text: str) -> str:
    """One part of a path; `.` and `..` would be taken for folders by what stands between."""
    return quote(text, safe="").replace(".", "%2E") if text in {".", ".."} else quote(text or " ", safe="")


def _query(values: dict[str, Any]) -> str:
    given = {key: value for key, value in values.items() if value is not None}
    return "?" + urlencode(given) if given else ""
