"""Fixtures that every part's tests share: test hosts, and an isolated main node."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
VENV_BIN = Path(sys.executable).parent
sys.path.insert(0, str(REPOSITORY / "tests" / "hosts"))

from hostpool import Host, HostPool, missing_requirements  # noqa: E402

# A shell ignores these in what it starts in the background, and children inherit it: Ctrl-C could not be tested.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(scope="session")
def host_pool() -> Iterator[HostPool]:
    """Makes test hosts: ``host_pool.create("name")``. Skips where there can be none, unless MONKEY_REQUIRE_HOSTS=1."""
    missing = missing_requirements()
    if missing and os.environ.get("MONKEY_REQUIRE_HOSTS") == "1":
        pytest.fail(f"test hosts are required here (MONKEY_REQUIRE_HOSTS=1), but this is missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"test hosts need: {', '.join(missing)}")
    with HostPool() as pool:
        yield pool


@pytest.fixture(scope="session")
def ssh_hosts(host_pool: HostPool) -> list[Host]:
    """Three hosts with systemd, shared by the session: leave them running, and clean up what you put there."""
    return host_pool.create_many(["lab1", "lab2", "lab3"])


@pytest.fixture(scope="session")
def bare_host(host_pool: HostPool) -> Host:
    """A host with nothing but sshd and Python: no systemd, sudo, rsync or pip. Shared by the session."""
    return host_pool.create("bare", systemd=False)


@pytest.fixture
def fresh_host(host_pool: HostPool) -> Iterator[Host]:
    """A host of this test's own, to kill, cut, fill or change as it likes; about 0.7 s."""
    host = host_pool.create("fresh")
    yield host
    host.destroy()
    host_pool.hosts.remove(host)


@dataclasses.dataclass
class MonkeyHome:
    """A main node of this test's own. ``env``: for commands that use it and nothing of the user's."""

    path: Path
    env: dict[str, str]

    def monkey(
        self, *args: str, cwd: Path | None = None, input: str | None = None, check: bool = False, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run ``monkey ARGS`` with output captured as text. Raises CalledProcessError when ``check`` and it fails."""
        done = subprocess.run(
            [str(VENV_BIN / "monkey"), *args],
            cwd=cwd or self.path.parent,
            env=self.env,
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"monkey {' '.join(args)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def core_pid(self) -> int | None:
        """The pid in core.json when that process lives."""
        try:
            pid = int(json.loads((self.path / "core.json").read_text())["pid"])
            os.kill(pid, 0)
        except (OSError, ValueError, KeyError):
            return None
        return pid

    def processes(self) -> list[int]:
        """Pids of the processes on this machine that belong to this home: core, playbooks, client, keepers, jobs."""
        own = {os.getpid(), os.getppid()}
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in own and self._belongs(entry):
                found.append(int(entry.name))
        return found

    def _belongs(self, process: Path) -> bool:
        with contextlib.suppress(OSError):
            where = os.readlink(process / "cwd").removesuffix(" (deleted)")
            if Path(where).is_relative_to(self.path):
                return True
            variables = (process / "environ").read_bytes().split(b"\0")
            if b"MONKEY_HOME=" + os.fsencode(self.path) in variables:
                return True
            return os.fsencode(self.path) + b"/" in (process / "cmdline").read_bytes()
        return False

    def close(self) -> None:
        """Stop the core as a user would, then end, by pid, whatever of this home still runs: jobs outlive a core."""
        if self.core_pid() is not None:
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                self.monkey("core", "stop", timeout_s=15)
        for number, grace_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + grace_s
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.02)


def _monkey_home(folder: Path, name: str) -> MonkeyHome:
    user_home = folder / f"{name}-user"
    user_home.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MONKEY_", "XDG_", "ANSIBLE_"))}
    # Short: the path of a Unix socket may have 108 bytes.
    env.update(MONKEY_HOME=str(folder / name), HOME=str(user_home), PATH=f"{VENV_BIN}:{os.environ['PATH']}")
    return MonkeyHome(folder / name, env)


@pytest.fixture
def make_monkey_home(tmp_path: Path) -> Iterator[Callable[[str], MonkeyHome]]:
    """Makes main nodes, for tests that need several: ``make_monkey_home("second")``. All are stopped at the end."""
    homes: list[MonkeyHome] = []

    def make(name: str) -> MonkeyHome:
        homes.append(_monkey_home(tmp_path, name))
        return homes[-1]

    yield make
    for home in homes:
        home.close()


@pytest.fixture(scope="session")
def session_monkey_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonkeyHome]:
    """One main node for tests that can share it: a start of a core and a look at hosts cost seconds."""
    home = _monkey_home(tmp_path_factory.mktemp("shared"), "mh")
    yield home
    home.close()


@pytest.fixture
def monkey_home(make_monkey_home: Callable[[str], MonkeyHome]) -> MonkeyHome:
    """An isolated MONKEY_HOME (not made yet, as on a new machine). ssh still looks into the passwd home, not $HOME."""
    return make_monkey_home("mh")
