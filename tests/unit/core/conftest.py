"""A core's parts on the in-memory store, with one host of provider lab; no process is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from monkey.core.follow import Follower
from monkey.core.hosts import HostBoard
from monkey.core.leases import Leases
from monkey.core.live import LiveJobs
from monkey.core.livehost import LiveHost
from monkey.core.wave import need
from monkey.engine import Engine
from monkey.jobs import Job, JobBook
from monkey.logs import LogBook
from monkey.paths import Home
from monkey.providers import ProviderBook
from monkey.states import Reason, State
from monkey.store import MemoryStore

HOST = "local/localhost"


@dataclass
class Given:
    """Orders as they were given: the connection to a host is not what these tests are about."""

    orders: list[tuple[str, str, int]] = field(default_factory=list)

    def give(self, op: str, job: Job) -> None:
        self.orders.append((op, job["juid"], job["attempt"]))

    def give_to(self, _host: LiveHost, op: str, juid: str, attempt: int) -> None:
        self.orders.append((op, juid, attempt))


@dataclass
class Parts:
    """What the tests work on."""

    jobs: JobBook
    logs: LogBook
    board: HostBoard
    follower: Follower
    live: LiveJobs
    leases: Leases
    orders: Given
    store: MemoryStore

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
            "priority": 500,
            "retries": 0,
            "retry_on": None,
            "retry_delay_s": 10.0,
            "lease_s": None,
            "phase_limits_s": {},
            "depends_on": [],
            "queue": None,
            "max_parallel": None,
            "code": None,
            "data": [],
            "persist": [],
            **fields,
        }
        return self.jobs.add(job, None)

    def dispatched(self, **fields: Any) -> str:
        """A job whose first attempt is on its way to the host."""
        juid = str(self.add(**fields)["juid"])
        entry = {"attempt": 1, "provider": "local", "host": "localhost", "state": "DISPATCHING", "over": False}
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
    logs = LogBook(home.jobs)
    jobs = JobBook(store, lambda job: live.note(job))  # noqa: PLW0108 - live comes later
    live = LiveJobs(need, jobs.state_of)
    board = HostBoard(ProviderBook(home), store, live, Engine(home.runs), "core", lambda: None)
    board.load()
    orders = Given()
    leases = Leases(board, jobs, live, lambda work: work.close())
    follower = Follower(board, jobs, live, logs, orders, leases, lambda: None)  # type: ignore[arg-type]
    yield Parts(jobs, logs, board, follower, live, leases, orders, store)
    store.close()
