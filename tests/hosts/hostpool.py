"""Test hosts: several machines on this one, each a network namespace with its own root file system, sshd and processes.

    with HostPool() as pool:
        host = pool.create("lab1")
        host.ssh(["uname", "-n"])

Everything of a host follows from its number N: address 10.77.0.N, namespace ``mhN``, link ``v-mhN``, cgroup ``mhN`` and
folder ``/run/monkey-hosts/mhN``. Numbers are taken under a lock, so any number of pools (pytest sessions, Molecule) run
side by side. A pool names its owner, a process; when that died without clean-up, the next pool removes what it left.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import hostimage
import hostmachine
from hostmachine import RUN_DIR, Host, HostError, load_host

__all__ = ["RUN_DIR", "Host", "HostError", "HostPool", "find_hosts", "missing_requirements", "sweep"]

NETWORK_NUMBERS = range(10, 251)
TOOLS = ("debootstrap", "ssh", "ssh-keygen", "ip", "unshare", "mount")


def missing_requirements() -> list[str]:
    """What keeps this machine from having test hosts, in words; empty when nothing does."""
    missing = [] if os.geteuid() == 0 else ["root"]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return missing + [tool for tool in TOOLS if shutil.which(tool, path=path) is None]


class HostPool:
    """Hosts that share one login key. Leaving the ``with`` block removes every host and the pool.

    owner_pid: the process whose end makes the pool garbage; default this one; 0: none, the pool stays until ``close``.
    Raises HostError when ``missing_requirements`` names something.
    """

    def __init__(self, owner_pid: int | None = None, pool_id: str | None = None) -> None:
        missing = missing_requirements()
        if missing:
            raise HostError(f"test hosts need: {', '.join(missing)}")
        self._layers = hostimage.layers()
        self.id = pool_id or f"pool-{uuid.uuid4().hex[:8]}"
        self.folder = RUN_DIR / self.id
        self.key_file = self.folder / "id_ed25519"
        self.hosts: list[Host] = []
        if pool_id is not None:
            self.owner = json.loads((self.folder / "pool.json").read_text())["owner"]
            self.hosts = [host for host in find_hosts() if host.pool == self.id]
            return
        pid = os.getpid() if owner_pid is None else owner_pid
        self.owner = [pid, hostmachine.start_time(pid) or 0]
        with hostmachine.locked():
            _sweep()
            self.folder.mkdir(mode=0o700)
            (self.folder / "pool.json").write_text(json.dumps({"owner": self.owner, "boot_id": hostmachine.boot_id()}))
        hostmachine.make_key(self.key_file, "monkey-test")

    def __enter__(self) -> HostPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self, name: str, systemd: bool = True, disk_mb: int = 4096, wait: bool = True) -> Host:
        """A new host. ``disk_mb``: size of what may be written to its root. ``wait``: until the user can log in."""
        with hostmachine.locked():
            number = _take_number()
            folder = RUN_DIR / f"mh{number}"
            host = Host(
                number=number,
                name=name,
                systemd=systemd,
                address=f"{hostmachine.NETWORK}.{number}",
                port=22,
                user=hostimage.USER,
                key_file=self.key_file,
                known_hosts=folder / "known_hosts",
                host_key="",
                owner=self.owner,
                pool=self.id,
                boot_id=hostmachine.boot_id(),
            )
            folder.mkdir()
            host.save()
        try:
            hostmachine.make_network(host)
            hostmachine.make_disk(host, self._layers, disk_mb)
            hostmachine.start(host)
            if wait:
                host.wait_ready()
        except BaseException:
            host.destroy()
            raise
        self.hosts.append(host)
        return host

    def create_many(self, names: Sequence[str], systemd: bool = True) -> list[Host]:
        """New hosts that boot side by side."""
        hosts = [self.create(name, systemd=systemd, wait=False) for name in names]
        for host in hosts:
            host.wait_ready()
        return hosts

    def close(self) -> None:
        """Remove every host of the pool, and its key."""
        with contextlib.ExitStack() as stack:  # the rest goes too when one cannot be removed
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            for host in self.hosts:
                stack.callback(host.destroy)
            self.hosts = []


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("mh"))


def find_hosts() -> list[Host]:
    """Every host recorded on this machine, by number, whoever owns it."""
    found = []
    for folder in sorted(RUN_DIR.glob("mh*"), key=_number):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(load_host(folder))
    return found


def sweep() -> list[str]:
    """Remove hosts and pools whose owner died without clean-up. Returns their names."""
    with hostmachine.locked():
        return _sweep()


def _sweep() -> list[str]:
    swept = []
    for host in find_hosts():
        if _abandoned(host.owner, host.boot_id):
            hostmachine.remove_host(host)
            swept.append(host.id)
    for folder in RUN_DIR.glob("mh*"):
        if not (folder / "host.json").exists():  # died between its first two steps; we hold the lock
            shutil.rmtree(folder)
    for folder in RUN_DIR.glob("pool-*"):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((folder / "pool.json").read_text())
            if _abandoned(record["owner"], record["boot_id"]):
                shutil.rmtree(folder)
                swept.append(folder.name)
    return swept


def _abandoned(owner: list[int], boot_id: str) -> bool:
    return boot_id != hostmachine.boot_id() or (owner[0] != 0 and hostmachine.start_time(owner[0]) != owner[1])


def _take_number() -> int:
    """The free number used longest ago, so that nothing that still remembers its last host meets the new one."""
    last_file = RUN_DIR / "last"
    last = int(last_file.read_text()) if last_file.exists() else 0
    numbers = [number for number in NETWORK_NUMBERS if number > last]
    numbers += [number for number in NETWORK_NUMBERS if number <= last]
    for number in numbers:
        if not (RUN_DIR / f"mh{number}").exists() and not Path(f"/run/netns/mh{number}").exists():
            last_file.write_text(str(number))
            return number
    raise HostError(f"all {len(numbers)} addresses of {hostmachine.NETWORK}.0/24 are taken")
