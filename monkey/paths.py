"""Where things lie in MONKEY_HOME on the main node (docs/interfaces.md, "Main node")."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# sun_path of a Unix socket, with its closing zero byte: unix(7); 104 on BSD and macOS.
_SOCKET_PATH_LIMIT = 104


def default_root() -> Path:
    """`$MONKEY_HOME`, else `~/.monkey`, as an absolute path."""
    named = os.environ.get("MONKEY_HOME", "")
    return Path(named).expanduser().absolute() if named else Path.home() / ".monkey"


@dataclass(frozen=True)
class Home:
    """Every path of one MONKEY_HOME. Nothing is created until `create()`."""

    root: Path

    @classmethod
    def find(cls, root: str | os.PathLike[str] | None = None) -> Home:
        """The home named by the argument, else by `MONKEY_HOME`, else `~/.monkey`."""
        return cls(Path(root).expanduser().absolute() if root is not None else default_root())

    @property
    def lock(self) -> Path:
        return self.root / "core.lock"

    @property
    def socket(self) -> Path:
        return self.root / "core.sock"

    @property
    def core_json(self) -> Path:
        """Written by a running core, removed by a clean stop: left behind, it tells of a crash."""
        return self.root / "core.json"

    @property
    def core_log(self) -> Path:
        return self.root / "core.log"

    @property
    def core_id(self) -> Path:
        return self.root / "core_id"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def journal(self) -> Path:
        return self.root / "state.journal"

    @property
    def providers(self) -> Path:
        return self.root / "providers.yml"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def inventories(self) -> Path:
        return self.root / "inventory"

    @property
    def monkeyfs(self) -> Path:
        return self.root / "monkeyfs"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def runs(self) -> Path:
        """ansible-runner's folders, one per run."""
        return self.root / "runs"

    @property
    def client(self) -> Path:
        """The client's home on this machine (provider `local`)."""
        return self.root / "client"

    def inventory(self, provider: str) -> Path:
        """The inventory file that `provider add` writes."""
        return self.inventories / f"{provider}.yml"

    def attempt(self, juid: str, attempt: int) -> Path:
        """The folder of one attempt of a job on the main node."""
        return self.jobs / juid / str(attempt)

    def log(self, juid: str, attempt: int) -> Path:
        """The main node's copy of an attempt's output."""
        return self.attempt(juid, attempt) / "log"

    def run(self, ident: str) -> Path:
        """ansible-runner's folder of one run."""
        return self.runs / ident

    def create(self) -> None:
        """Makes the home and its folders, all 0700.

        Raises:
            OSError: when the home cannot be made or belongs to somebody else.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.root.stat().st_uid != os.geteuid():
            raise PermissionError(f"{self.root} belongs to another user")
        if self.root.stat().st_mode & 0o077:
            self.root.chmod(0o700)
        for folder in (self.inventories, self.monkeyfs, self.jobs, self.runs):
            folder.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """A name of `path` that is short enough to bind or connect to, valid inside the `with`.

    A socket's path may have 107 bytes; a home deep in a file system is reached through a descriptor of its folder.
    """
    if len(os.fsencode(path)) < _SOCKET_PATH_LIMIT:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
