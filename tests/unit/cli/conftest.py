"""A stand-in for the core at the outermost edge: HTTP on the Unix socket of a MONKEY_HOME, with a real monkeyfs."""

from __future__ import annotations

import io
import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS

from monkey.cli.base import run_line
from monkey.cli.main import cli
from monkey.paths import Home, socket_address
from monkey.version import __version__

FINAL = {"SUCCEEDED", "FAILED", "FAILED_SETUP", "CANCELLED", "TIMED_OUT", "LOST"}


class FakeCore:
    """Answers as docs/interfaces.md says; what a test wants to go wrong it sets here."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.fs = MonkeyFS(home.monkeyfs)
        self.version = __version__
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, bytes] = {}
        self.keys: dict[str, str] = {}
        self.submissions: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.plans: list[dict[str, Any]] = []
        self.added: list[dict[str, Any]] = []
        self.packed: list[int] = []
        self.providers = [_provider("local", "local"), _provider("lab", "ssh")]
        self.probed = [{"host": "me@h", "fingerprint": "SHA256:abc", "key_type": "ED25519", "error": None}]
        # Where to cut the connection: after so many bytes of a log, once each.
        self.cut_logs_at: list[int] = []
        self.lose_submit_answers = 0
        self.refuse: dict[str, tuple[int, str, str]] = {}
        # By "METHOD /path?query": JSON, or for streams a list of bytes of which each is one answer. Then what was sent.
        self.answers: dict[str, Any] = {}
        self.bodies: dict[str, Any] = {}
        # What becomes of a job: applied, one after the other, when somebody waits for it.
        self.becomes: list[dict[str, Any]] = [
            {"state": "RUNNING", "host": "localhost"},
            {"state": "SUCCEEDED", "reason": "EXITED", "exit_code": 0, "message": "The command ended."},
        ]
        self.output = b""
        self.collected: dict[str, Any] = {"tree": None}
        self._server: socketserver.ThreadingMixIn | None = None

    def start(self) -> None:
        """Listens on core.sock."""
        self.home.create()
        core = self

        class Handler(_Handler):
            fake = core

        with socket_address(self.home.socket) as address:
            server = _Server(address, Handler)
        self._server = server
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """As a core that stops cleanly."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self.home.socket.unlink(missing_ok=True)
            self._server = None

    def add_job(self, **fields: Any) -> dict[str, Any]:
        """A job of earlier."""
        number = len(self.jobs) + 1
        job = {
            "juid": f"26-11-21-{number:03d}", "nickname": ["kob", "bab", "dod", "zaz"][number - 1], "name": "mnist",
            "project": None, "state": "QUEUED", "reason": "SUBMITTED", "message": "Accepted.", "phase": None,
            "exit_code": None, "provider": "local", "host": None, "instance": None, "attempt": 0,
            "command": ["python3", "mnist.py"], "submitted_at": "2026-11-21T09:00:00.000Z", "started_at": None,
            "finished_at": None, "run": {"env_type": "none"}, "install": [], "setup": [], "env": {},
            "resources": {"cpus": 1.0, "gpus": 0, "memory_mb": None}, "time_limit_s": None, "code": None, "data": [],
            "persist": [], "attempts": [], "cancel_requested": False, "revision": 1, **fields,
        }  # fmt: skip
        self.jobs[job["juid"]] = job
        self.logs.setdefault(job["juid"], b"")
        return job

    def find(self, ident: str) -> dict[str, Any] | None:
        """By JUID or nickname."""
        return next((job for job in self.jobs.values() if ident in (job["juid"], job["nickname"])), None)


def _provider(name: str, kind: str) -> dict[str, Any]:
    host = {
        "name": "localhost", "address": "localhost", "user": None, "port": None, "state": "ready", "message": "",
        "cpus": 2, "gpus": [], "memory_mb": 24000, "disk_free_mb": 90000, "python": "3.11.2", "running": 0,
        "max_jobs": None,
    }  # fmt: skip
    return {"name": name, "type": kind, "playbook": "monkey.runner.launch_wave", "hosts": [host]}


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeCore

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        self._route("GET")

    def do_POST(self) -> None:
        self._route("POST")

    def do_PATCH(self) -> None:
        self._route("PATCH")

    def do_PUT(self) -> None:
        self._route("PUT")

    def do_DELETE(self) -> None:
        self._route("DELETE")

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, value: Any, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _problem(self, code: int, field: str, message: str) -> None:
        self._answer({"error": {"field": field, "message": message}}, code)

    def _route(self, method: str) -> None:
        split = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        parts = [unquote(part) for part in split.path.split("/")[2:]]
        name = f"{method} /{'/'.join(parts)}"
        self.fake.requests.append(name)
        body = self._body()
        theirs = self.headers.get("X-Monkey-Version")
        if theirs != self.fake.version and parts[0] not in {"status", "stop"}:
            self._problem(409, "version", f"the core is version {self.fake.version}, this client is version {theirs}")
            return
        if name in self.fake.refuse:
            self._problem(*self.fake.refuse[name])
            return
        canned = self.fake.answers.get(f"{name}?{split.query}", self.fake.answers.get(name))
        if canned is not None:
            self.fake.bodies[name] = json.loads(body) if body else None
            streamed = isinstance(canned, list) and isinstance(canned[0], bytes)
            self._chunks([canned[0] if len(canned) == 1 else canned.pop(0)]) if streamed else self._answer(canned)
            return
        getattr(self, f"_{parts[0]}")(method, parts[1:], query, body)

    def _status(self, *_: Any) -> None:
        self._answer({"pid": os.getpid(), "version": self.fake.version, "uptime_s": 12.5, "home": "h", "jobs": {}})

    def _plan(self, _method: str, _parts: list[str], _query: dict[str, str], body: bytes) -> None:
        self.fake.plans.append(json.loads(body))
        self._answer({
            "provider": "local", "host": "localhost", "playbook": "monkey.runner.launch_wave",
            "send": {"files": 1, "bytes": 2}, "reason": "goes to host localhost",
        })  # fmt: skip

    def _fs(self, method: str, parts: list[str], _query: dict[str, str], body: bytes) -> None:
        fs = self.fake.fs
        if parts[0] == "missing":
            self._answer({"missing": fs.missing(json.loads(body)["sha256"])})
        elif parts[0] == "pack" and method == "PUT":
            files, size = packs.read(io.BytesIO(body), fs)
            self.fake.packed.append(files)
            self._answer({"files": files, "bytes": size})
        elif parts[0] == "pack":
            self._chunks([*packs.chunks(fs, json.loads(body)["sha256"])])
        elif method == "PUT":
            assert fs.put_tree(json.loads(body)) == parts[1]
            self._answer({})
        else:
            self._answer(fs.get_tree(parts[1]))

    def _providers(self, method: str, parts: list[str], _query: dict[str, str], body: bytes) -> None:
        known = {provider["name"]: provider for provider in self.fake.providers}
        if not parts and method == "GET":
            self._answer({"providers": self.fake.providers})
        elif not parts:
            asked = json.loads(body)
            self.fake.added.append(asked)
            self.fake.providers.append(_provider(asked["name"], asked["type"]))
            self._answer(self.fake.providers[-1])
        elif parts[0] == "probe":
            self._answer({"hosts": self.fake.probed})
        elif parts[0] not in known:
            self._problem(404, "provider", f"no provider {parts[0]!r}; did you mean lab?")
        else:
            self._answer(known[parts[0]])

    def _jobs(self, method: str, parts: list[str], query: dict[str, str], body: bytes) -> None:
        if not parts:
            if method == "POST":
                self._submit(json.loads(body))
            else:
                found = [job for job in self.fake.jobs.values() if query.get("provider") in (None, job["provider"])]
                self._answer({"jobs": found})
            return
        job = self.fake.find(parts[0])
        if job is None:
            self._problem(404, "job", f"no job {parts[0]!r}; did you mean kob?")
        elif len(parts) == 1:
            self._answer(job)
        elif parts[1] == "wait":
            time.sleep(0.02)
            if self.fake.becomes and job["state"] not in FINAL:
                job.update(self.fake.becomes.pop(0), revision=job["revision"] + 1, attempt=1)
            self._answer(job)
        elif parts[1] == "log":
            self._log(job, int(query["offset"]), query["follow"] == "1")
        elif parts[1] == "collect":
            self._answer({"persist": [{**item, **self.fake.collected} for item in job["persist"]]})
        elif parts[1] == "rerun":
            self._answer(self.fake.add_job(command=job["command"]))
        else:
            if parts[1] == "cancel":
                job.update(state="CANCELLED", revision=job["revision"] + 1)
            self._answer(job)

    def _submit(self, submission: dict[str, Any]) -> None:
        key = self.headers["Idempotency-Key"]
        if key not in self.fake.keys:
            self.fake.submissions.append(submission)
            job = self.fake.add_job(command=submission["command"], persist=submission.get("persist", []))
            self.fake.keys[key] = job["juid"]
            self.fake.logs[job["juid"]] = self.fake.output
        if self.fake.lose_submit_answers:
            self.fake.lose_submit_answers -= 1
            self.close_connection = True
            return
        self._answer(self.fake.jobs[self.fake.keys[key]])

    def _log(self, job: dict[str, Any], offset: int, follow: bool) -> None:
        deadline = time.monotonic() + 5
        while follow and job["state"] not in FINAL and time.monotonic() < deadline and not self.fake.cut_logs_at:
            time.sleep(0.01)
        data = self.fake.logs[job["juid"]][offset:]
        cut = self.fake.cut_logs_at.pop(0) if self.fake.cut_logs_at else None
        self._chunks([data[:cut]] if data else [], whole=cut is None)

    def _chunks(self, pieces: list[bytes], whole: bool = True) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True


@pytest.fixture(autouse=True)
def _no_real_core(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a unit test wanted to start a core")

    monkeypatch.setattr("monkey.corestart._start", refuse)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty MONKEY_HOME that is not there yet."""
    place = tmp_path / "home"
    monkeypatch.setenv("MONKEY_HOME", str(place))
    monkeypatch.delenv("MONKEY_DEBUG", raising=False)
    return Home(place)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a little code; the working folder."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.py").write_text("print('a')\n")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def core(home: Home) -> Iterator[FakeCore]:
    """The stand-in, listening."""
    fake = FakeCore(home)
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def monkey(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, bytes, str]]:
    """Runs one command line: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, bytes, str]:
        capfdbinary.readouterr()
        code = run_line(cli, arguments)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


