"""A core's parts on the in-memory store, with one host of provider lab; no process is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monkey.core.follow import Follower
from monkey.core.hosts import HostBoard, LiveHost
from monkey.engine import Engine
from monkey.jobs import Job, JobBook
from monkey.logs import LogBook
from monkey.paths import Home
from monkey.providers import ProviderBook
from monkey.states import Reason, State
from monkey.store import MemoryStore

HOST = "local/localhost"


@dataclass
class Parts:
    """What the tests work on."""

    jobs: JobBook
    logs: LogBook
    board: HostBoard
    follower: Follower
    cancelled: list[str] = field(default_factory=list)

    @property
    def host(self) -> LiveHost:
        found = self.board.get("local", "localhost")
        assert found
        return found

    def add(self, **fields: Any) -> Job:
        """A queued job."""
        job = {
            "name": "train",
            "project": None,
            "provider": "local",
            "instance": None,
            "command": ["true"],
            "run": {"env_type": "none", "env_file": None, "env_content": None, "image": None},
            "install": [],
            "setup": [],
            "env": {},
            "resources": {"cpus": 1.0, "gpus": 0, "memory_mb": None},
            "time_limit_s": None,
            "priority": 0,
            "code": None,
            "data": [],
            "persist": [],
            **fields,
        }
        return self.jobs.add(job, None)

    def dispatched(self, **fields: Any) -> str:
        """A job whose first attempt is on its way to the host."""
        juid = str(self.add(**fields)["juid"])
        entry = {"attempt": 1, "host": "localhost", "state": "DISPATCHING"}
        self.jobs.change(
            juid, State.DISPATCHING, Reason.DISPATCHED, host="localhost", attempt=1, attempts=[entry]
        )
        return juid

    def event(self, juid: str, kind: str, **more: Any) -> None:
        """The host says something about the first attempt."""
        self.follower.on_event(HOST, {"seq": 1, "ts": 1.0, "juid": juid, "attempt": 1, "type": kind, **more})


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    home = Home(tmp_path / "home")
    home.create()
    store = MemoryStore()
    jobs, logs = JobBook(store), LogBook(home.jobs)
    cancelled: list[str] = []
    board = HostBoard(ProviderBook(home), store, jobs, Engine(home.runs), "core", lambda: None)
    board.load()
    follower = Follower(board, jobs, logs, lambda: None, cancelled.append)
    yield Parts(jobs, logs, board, follower, cancelled)
    store.close()
