"""A main node with hosts to break: jobs that count themselves, and what is left of them on each machine."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from witness import Tally, Witness

from monkey.apiclient import Api
from monkey.paths import Home

FINAL = {"SUCCEEDED", "FAILED", "FAILED_SETUP", "CANCELLED", "TIMED_OUT", "LOST"}
PROVIDER = "faults"
Json = dict[str, Any]


@dataclass
class Place:
    """A machine that jobs run on. ``seen``: its folder of witnesses as this machine sees it, also when cut off."""

    name: str
    host: Any
    folder: str
    seen: Path
    lab: Lab = field(repr=False)

    def command(self, *actions: Any) -> list[str]:
        """A command that counts itself here."""
        return Witness(self.folder).carried(*actions)

    def go(self, name: str) -> str:
        """Path, for the job, of a file that it may wait for; ``let`` makes it."""
        return f"{self.folder}/{name}.go"

    def let(self, name: str) -> None:
        """Make that file."""
        (self.seen / f"{name}.go").touch()

    @property
    def client_home(self) -> Path:
        """The client's folder, as this machine sees it."""
        if self.host is None:
            return Home(self.lab.home.path).client
        core_id = (self.lab.home.path / "core_id").read_text().strip()
        clients = Path(self.host.root) / "home" / self.host.user / ".monkey-client"
        return clients / f"{core_id}-{PROVIDER}-{self.name}"

    def jobs_processes(self) -> list[tuple[int, str]]:
        """(pid, command line) of keepers, commands and what they left."""
        if self.host is not None:
            return [found for found in self.host.processes(self.host.user) if _is_of_a_job(found[0], None)]
        return [(pid, _line(pid)) for pid in self.lab.home.processes() if _is_of_a_job(pid, self.client_home)]

    def clients(self, which: str) -> list[int]:
        """Pids of ``daemon``, ``stream``, or of keepers (``keeper JUID.n`` for one)."""
        kind, _, key = which.partition(" ")
        name = self.client_home.name if self.host is not None else str(self.client_home)
        mark = f"monkey-job {key}".strip()
        if self.host is not None:
            found = self.host.processes(self.host.user)
        else:
            found = [(pid, _line(pid)) for pid in self.lab.home.processes()]
        if kind == "keeper":
            # The title has no room for the home: its folder tells whose keeper it is.
            return [pid for pid, line in found if line.startswith(mark) and name in _files_of(pid)]
        return [pid for pid, line in found if f" {kind} --home" in line and name in line and "sh -c" not in line]


class Lab:
    """A main node and its places: ``here`` (provider local) and the hosts of provider ``faults``."""

    def __init__(self, home: Any, hosts: list[Any], folder: Path) -> None:
        self.home = home
        self.api = Api(Home(home.path))
        self._said = f"w-{uuid.uuid4().hex[:8]}"
        here = folder / "witness"
        here.mkdir(parents=True, exist_ok=True)
        self.here = Place("localhost", None, str(here), here, self)
        self.places = [self._place(host) for host in hosts]

    def _place(self, host: Any) -> Place:
        inside = f"/home/{host.user}/{self._said}"
        seen = Path(f"{host.root}{inside}")
        seen.mkdir(exist_ok=True)
        owner = seen.parent.stat()
        os.chown(seen, owner.st_uid, owner.st_gid)
        return Place(host.address, host, inside, seen, self)

    def start(self) -> None:
        """Start the core as a user would, and add the hosts."""
        self.home.monkey("core", "start", check=True)
        self.add_hosts()

    def add_hosts(self) -> None:
        """Provider ``faults``, unless it is there."""
        if not self.places or any(found["name"] == PROVIDER for found in self.api.providers()):
            return
        flags = [w for p in self.places for w in ("--host", f"{p.host.user}@{p.host.address}:{p.host.port}")]
        flags += ["--key", str(self.places[0].host.key_file), "--noinput"]
        self.home.monkey("provider", "add", PROVIDER, "--type", "ssh", *flags, check=True, timeout_s=120)

    # -- jobs

    def submit(self, place: Place | None, *actions: Any, **fields: Any) -> str:
        """Hand in a job that counts itself; None: the scheduler chooses among the hosts. Returns the JUID."""
        there = place or self.places[0]
        submission: Json = {
            "command": there.command(*actions),
            "provider": "local" if there.host is None else PROVIDER,
            "resources": {"cpus": 0.05},
            **fields,
        }
        if place is not None and place.host is not None:
            submission.setdefault("instance", place.name)
        return str(self.api.submit(submission, uuid.uuid4().hex)["juid"])

    def warm_up(self) -> None:
        """The client on every machine, before anything is measured."""
        for juid in [self.submit(place) for place in self._all()]:
            self.until(juid, "SUCCEEDED")

    def submit_leased(self, place: Place, lease_s: float = 5.0, later_s: float = 1.0, **fields: Any) -> str:
        """A job that begins on a host and may go on elsewhere: its first attempt lasts, the others end soon."""
        others = [] if place.host is None else [other for other in self.places if other is not place]
        for other in others:
            self.api.drain(PROVIDER, other.name, "the test places a job")
        script = f'[ "$MONKEY_ATTEMPT" = 1 ] && exec "$@" 600; exec "$@" {later_s}'
        given = {"retries": 2, "retry_delay_s": 0.2, "lease_s": lease_s, **fields}
        command = ["sh", "-c", script, "sh", *place.command("beat")]
        juid = self.submit(place if place.host is None else None, command=command, **given)
        job = self.until(juid, lambda job: job["host"])
        assert job["host"] == place.name
        for other in others:
            self.api.resume_host(PROVIDER, other.name)
        return juid

    def steady(self) -> None:
        """As after a quiet day: no host is drained for having come and gone under the tests before."""
        for place in self.places:
            self.api.drain(PROVIDER, place.name, "the next test begins")
            self.api.resume_host(PROVIDER, place.name)

    def job(self, juid: str) -> Json:
        """The record."""
        return self.api.job(juid)

    def until(self, juid: str, wanted: str | set[str] | Callable[[Json], Any], timeout_s: float = 60) -> Json:
        """Wait for a state, one of some, or a condition; AssertionError when the job ends in another way, or late."""
        states = {wanted} if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout_s
        while True:
            job = self.job(juid)
            if states(job) if callable(states) else job["state"] in states:
                return job
            if job["state"] in FINAL or time.monotonic() > deadline:
                raise AssertionError(f"{juid} is {job['state']}, not {wanted}: {job['reason']}: {job['message']}")
            time.sleep(0.05)

    def end(self, juid: str, timeout_s: float = 60) -> Json:
        """The record once it has ended."""
        return self.until(juid, FINAL, timeout_s)

    def log(self, juid: str) -> bytes:
        """The job's output."""
        return b"".join(self.api.log(juid))

    # -- figures

    def tally(self) -> Tally:
        """Executions on all machines."""
        return Tally(f"{path.name}" for place in self._all() for path in place.seen.iterdir())

    def spans(self, juid: str) -> dict[int, tuple[float, float]]:
        """Begin and last sign of life of each executed attempt, by this machine's clock: the hosts have the same."""
        found: dict[int, tuple[float, float]] = {}
        for place in self._all():
            for run in place.seen.glob(f"{juid}.*.run"):
                last = float(run.read_text().split()[1])
                beats = run.with_suffix(".beat")
                if beats.exists():
                    last = float(beats.read_text().split("\n")[-2])
                found[int(run.name.split(".")[1])] = (float(run.read_text().split()[1]), last)
        return found

    def twice(self, juids: list[str]) -> int:
        """Attempts that were executed twice, and pairs of one job's attempts that ran at one time."""
        again = sum(name.rpartition(".")[0] in juids for name in self.tally().twice)
        for juid in juids:
            spans = sorted(self.spans(juid).values())
            again += sum(ended >= begun for (_, ended), (begun, _) in itertools.pairwise(spans))
        return again

    def left(self, within_s: float = 10.0) -> int:
        """Processes of jobs and playbooks of this node that are still there after the time: for when all has ended."""
        deadline = time.monotonic() + within_s
        while True:
            lines = [found for place in self._all() for found in place.jobs_processes()]
            lines += self.playbooks("launch_wave")
            if not lines or time.monotonic() > deadline:
                for pid, line in lines:
                    print(f"left behind: {pid} {line[:200]}")
                return len(lines)
            time.sleep(0.1)

    def playbooks(self, name: str = "") -> list[tuple[int, str]]:
        """Playbook runs of this node, workers and ssh included."""
        runs = f"{self.home.path}/runs/{name}"
        return [(pid, line) for pid in self.home.processes() if runs in (line := _line(pid))]

    def local_lines(self) -> list[tuple[int, str]]:
        """(pid, command line) of every process of this node on this machine."""
        return [(pid, _line(pid)) for pid in self.home.processes()]

    def core_ssh(self, place: Place) -> list[int]:
        """The core's ssh process that holds the stream of a host."""
        return [
            pid for pid in self.home.processes()
            if (line := _line(pid)).startswith("ssh ") and f" {place.name} " in line and " stream " in line
        ]  # fmt: skip

    def _all(self) -> list[Place]:
        return [self.here, *self.places]


def _line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _files_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return " ".join(os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return ""


def _is_of_a_job(pid: int, client_home: Path | None) -> bool:
    with contextlib.suppress(OSError):
        where = os.readlink(f"/proc/{pid}/cwd")
        variables = Path(f"/proc/{pid}/environ").read_bytes()
        mine = client_home is None or where.startswith(f"{client_home}/")
        return (mine and "/attempts/" in where) or b"MONKEY_JUID=" in variables
    return False


def send(number: int, pids: list[int]) -> int:
    """A signal to each process that is still there; to how many."""
    sent = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            sent += 1
    return sent


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """SIGSTOP now, SIGCONT at the end."""
    assert send(signal.SIGSTOP, pids) == len(pids) > 0
    try:
        yield
    finally:
        send(signal.SIGCONT, pids)


_labs: dict[Path, Lab] = {}


def shared_lab(host_pool: Any, home: Any, tmp_path_factory: Any) -> Lab:
    """The session's own: five hosts beside those that others use, with the client on each."""
    if home.path not in _labs:
        hosts = host_pool.create_many([f"fault{number}" for number in range(1, 6)])
        lab = Lab(home, hosts, tmp_path_factory.mktemp("faults"))
        lab.start()
        lab.warm_up()
        _labs[home.path] = lab
    _labs[home.path].steady()
    return _labs[home.path]


def another_home(home: Any, folder: Path) -> Any:
    """A main node of its own, not started; close it."""
    user = folder / "user"
    user.mkdir(parents=True)
    env = {**home.env, "MONKEY_HOME": str(folder / "mh"), "HOME": str(user)}
    return dataclasses.replace(home, path=folder / "mh", env=env)


def took(fault: Any, seconds: float) -> None:
    """Have the row say how long a fault took that was made beside others, before the test."""
    fault._began = time.monotonic() - seconds


def side_by_side(*works: Callable[[], None]) -> None:
    """Run all at one time; the first error is raised once all are over."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
