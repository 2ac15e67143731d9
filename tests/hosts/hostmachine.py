"""One test host: its record, what a test does with it, and how it is made of namespaces, mounts and a link."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import hostimage

RUN_DIR = Path("/run/monkey-hosts")
BRIDGE = "mjrbr0"
NETWORK = "10.77.0"
_READY_S = 30.0
# What a machine with sshd and Python alone does not have; hidden from the hosts without systemd.
_NOT_ON_BARE = ("sudo", "rsync", "systemctl", "systemd-run", "loginctl", "journalctl")


class HostError(RuntimeError):
    """A test host could not be made, or does not answer. The message names the host and the step."""


@dataclasses.dataclass
class Host:
    """A running (or killed) test host. ``user`` is who logs in unless a call says otherwise: no root, no sudo."""

    number: int
    name: str
    systemd: bool
    address: str
    port: int
    user: str
    key_file: Path
    known_hosts: Path
    host_key: str
    owner: list[int]
    pool: str
    boot_id: str
    pids: list[list[int]] = dataclasses.field(default_factory=list)  # [pid, start time], the launcher first, then init

    @property
    def id(self) -> str:
        return f"mh{self.number}"

    @property
    def folder(self) -> Path:
        return RUN_DIR / self.id

    @property
    def root(self) -> Path:
        """The host's root file system, as seen from this machine. Its /run, /tmp and /dev are its own and not seen."""
        return self.folder / "disk" / "root"

    @property
    def link(self) -> str:
        return f"v-{self.id}"

    @property
    def init_pid(self) -> int | None:
        """The host's process 1, as numbered on this machine; None when the host is off."""
        alive = [pid for pid, started in self.pids[1:] if start_time(pid) == started]
        return alive[0] if alive else None

    def ssh_argv(self, user: str | None = None) -> list[str]:
        """The ssh command up to and with the destination: no agent, no configuration of ours, host key pinned."""
        options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "ConnectTimeout=5",
            "LogLevel=ERROR",
            "StrictHostKeyChecking=yes",
        ]
        options += [f"UserKnownHostsFile={self.known_hosts}", "GlobalKnownHostsFile=/dev/null", "ControlPath=none"]
        argv = ["ssh", "-F", "none", "-i", str(self.key_file), "-p", str(self.port)]
        return argv + [word for option in options for word in ("-o", option)] + [f"{user or self.user}@{self.address}"]

    def ssh(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        input: str | None = None,
        check: bool = True,
        timeout_s: float = 30,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command over ssh. Raises HostError when it fails (with ``check``), TimeoutExpired after the time."""
        given: dict[str, object] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        line = [*self.ssh_argv(user), "--", shlex.join(argv)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout_s, check=False, **given)  # type: ignore[call-overload]
        if check and done.returncode != 0:
            raise HostError(f"{self.name}: {shlex.join(argv)} exited {done.returncode}: {done.stdout}{done.stderr}")
        return done  # type: ignore[no-any-return]

    def processes(self, user: str | None = None) -> list[tuple[int, str]]:
        """(pid, command line) of all its processes or of one user's: from /proc here, without the host's help."""
        init = self.init_pid
        if init is None:
            return []
        uid = None if user is None else self._uid(user)
        namespace = os.readlink(f"/proc/{init}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                mine = entry.name.isdigit() and os.readlink(entry / "ns/pid") == namespace
                if mine and uid in (None, int(re.findall(r"Uid:\s+(\d+)", (entry / "status").read_text())[0])):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    found.append((int(entry.name), b" ".join(words).decode(errors="replace").strip()))
        return found

    def _uid(self, user: str) -> int:
        for line in (self.root / "etc/passwd").read_text().splitlines():
            if line.startswith(f"{user}:"):
                return int(line.split(":")[2])
        raise HostError(f"{self.name}: no user {user}")

    def cut(self) -> None:
        """The network goes silently: no packet in or out, connections stay half open."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Undo ``cut``."""
        _ip("link", "set", self.link, "up")

    def kill(self, silent: bool = False) -> None:
        """Power off without warning. ``silent``: nothing answers, as with a real machine; else ports are closed."""
        if silent:
            self.cut()
        _end(self)

    def power_on(self) -> None:
        """Start the host again after ``kill``, with its disk as it was."""
        if self.init_pid is not None:
            raise HostError(f"{self.name} is on")
        _end(self)
        self.heal()
        start(self)
        self.wait_ready()

    def wait_ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until the user can log in. Raises HostError with the last reason after the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            reason = self._refusal()
            if reason is None:
                return
            if time.monotonic() > deadline or self.init_pid is None:
                console = (self.folder / "console").read_text(errors="replace")[-2000:]
                raise HostError(f"{self.name} ({self.address}) is not ready: {reason}\n{console}")
            time.sleep(0.03)

    def _refusal(self) -> str | None:
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as probe:
                if not probe.recv(4):
                    return "sshd closed the connection"
        except OSError as error:
            return str(error)
        done = self.ssh(["true"], check=False)
        return None if done.returncode == 0 else done.stderr.strip()

    def destroy(self) -> None:
        """End its processes and remove all of it. A second call does nothing."""
        remove_host(self)

    def save(self) -> None:
        temporary = self.folder / "host.json.new"
        temporary.write_text(json.dumps(dataclasses.asdict(self), default=str, indent=1))
        temporary.rename(self.folder / "host.json")


def load_host(folder: Path) -> Host:
    """The host whose folder this is, from its ``host.json``."""
    record = json.loads((folder / "host.json").read_text())
    record.update(key_file=Path(record["key_file"]), known_hosts=Path(record["known_hosts"]))
    return Host(**record)


def make_disk(host: Host, layers: Sequence[Path], disk_mb: int) -> None:
    disk, root = host.folder / "disk", host.root
    disk.mkdir()
    _run(["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m,mode=755", "tmpfs", str(disk)])
    for part in ("up", "work", "root"):
        (disk / part).mkdir()
    options = f"lowerdir={':'.join(map(str, layers))},upperdir={disk}/up,workdir={disk}/work"
    _run(["mount", "-t", "overlay", f"ov-{host.id}", "-o", options, str(root)])
    for old in (root / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    key = root / "etc/ssh/ssh_host_ed25519_key"
    make_key(key, host.name)
    host.host_key = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    host.known_hosts.write_text(f"{host.address} {host.host_key}\n")
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").write_text(f"{host.name}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{host.address} {host.name}\n")
    public = host.key_file.with_suffix(".pub").read_text()
    for user, home in (("root", root / "root"), (hostimage.USER, root / "home" / hostimage.USER)):
        owner = 0 if user == "root" else host._uid(user)
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        (home / ".ssh/authorized_keys").write_text(public)
        for path in (home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, owner, owner)
    if not host.systemd:
        for tool in _NOT_ON_BARE:
            (root / "usr/bin" / tool).unlink()
    shutil.copyfile(Path(__file__).with_name("hostinit.sh"), root / "hostinit")
    (root / "hostinit").chmod(0o755)
    host.save()


def make_key(path: Path, comment: str) -> None:
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def make_network(host: Host) -> None:
    with locked():
        if not Path(f"/sys/class/net/{BRIDGE}").exists():
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
        _ip("netns", "add", host.id)
        _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.id)
        _ip("link", "set", host.link, "master", BRIDGE, "up")
    # A MAC that follows from the address: nobody's ARP table goes stale when the number is used again.
    _ip("-n", host.id, "link", "set", "eth0", "address", f"02:77:00:00:00:{host.number:02x}")
    _ip("-n", host.id, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", host.id, "link", "set", "eth0", "up")
    _ip("-n", host.id, "link", "set", "lo", "up")


def start(host: Host) -> None:
    cgroup = _cgroup(host)
    cgroup.mkdir(exist_ok=True)
    root = shlex.quote(str(host.root))
    kind = "systemd" if host.systemd else "bare"
    inside = f"mkdir -p {root}/.old && mount --bind {root} {root} && cd {root} && pivot_root . .old"
    inside += f" && exec chroot . /hostinit {kind}"
    outside = ["ip", "netns", "exec", host.id, "unshare", "--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup"]
    outside += ["--propagation", "private", "bash", "-c", inside]
    script = f"echo $$ > {shlex.quote(str(cgroup / 'cgroup.procs'))}; exec {shlex.join(outside)}"
    with (host.folder / "console").open("ab") as console:
        launcher = subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            env=_env(),
        )
    _launchers[launcher.pid] = launcher
    host.pids = [[launcher.pid, start_time(launcher.pid) or 0]]
    host.save()
    deadline = time.monotonic() + 5
    while len(host.pids) < 2:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        with contextlib.suppress(OSError):
            host.pids += [[int(pid), start_time(int(pid)) or 0] for pid in children.read_text().split()]
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise HostError(
                f"{host.name} did not start: {(host.folder / 'console').read_text(errors='replace')[-2000:]}"
            )
        time.sleep(0.005)
    host.save()


_launchers: dict[int, subprocess.Popen[bytes]] = {}  # those that this process must reap


def _end(host: Host) -> None:
    """SIGKILL to process 1 of the host takes its whole tree along; then the launcher ends by itself."""
    for pid, started in reversed(host.pids):
        if start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pid in _launchers:
            _launchers.pop(pid).wait()
        deadline = time.monotonic() + 10
        while start_time(pid) == started and time.monotonic() < deadline:
            time.sleep(0.005)
    cgroup = _cgroup(host)
    if cgroup.is_dir():
        for folder in sorted((path for path in cgroup.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        cgroup.rmdir()


def remove_host(host: Host) -> None:
    _end(host)
    # Namespaces of a crashed launch may hold the mounts for a moment: a lazy unmount never fails for that.
    for point in (host.root, host.folder / "disk"):
        if os.path.ismount(point):
            _umount(point)
    with locked():
        if Path(f"/sys/class/net/{host.link}").exists():
            _ip("link", "del", host.link)
        if Path(f"/run/netns/{host.id}").exists():
            _ip("netns", "del", host.id)
        shutil.rmtree(host.folder, ignore_errors=True)
        bridge = Path(f"/sys/class/net/{BRIDGE}/brif")
        if bridge.is_dir() and not any(bridge.iterdir()):
            _ip("link", "del", BRIDGE)


_lock_depth = 0


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One pool at a time on this machine; may be nested."""
    global _lock_depth
    if _lock_depth:
        yield
        return
    RUN_DIR.mkdir(mode=0o755, exist_ok=True)
    with (RUN_DIR / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _lock_depth += 1
        try:
            yield
        finally:
            _lock_depth -= 1


def _cgroup(host: Host) -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(point) / host.id
    raise HostError("no cgroup2 file system is mounted on this machine")


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process began: with the pid, its name for good. None: gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _umount(point: Path) -> None:
    if ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(point), 2) != 0:  # 2: MNT_DETACH
        raise HostError(f"cannot unmount {point}: {os.strerror(ctypes.get_errno())}")


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _env() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=_env())
    if done.returncode != 0:
        raise HostError(f"{shlex.join(argv)} failed: {done.stderr.strip()}")
