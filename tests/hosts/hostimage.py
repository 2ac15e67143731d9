"""The root file system that every test host starts from.

Two layers, each made once, kept outside the tree and named by a hash of what it is made of:

- ``root-<hash>``: a minimal Debian with sshd and Python, made by debootstrap (about 50 s, 330 MB);
- ``wheels-<hash>``: ``/wheels`` and a pip that looks nowhere else, so that pip environments need no network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUITE = "bookworm"
# The list of FACTS.md: what a lab machine has anyway, and catatonit as init of the hosts without systemd.
# There is no pip and no ensurepip on purpose: that is what a bare Debian looks like.
PACKAGES = (
    "openssh-server",
    "python3",
    "sudo",
    "rsync",
    "ca-certificates",
    "systemd",
    "systemd-sysv",
    "dbus",
    "iproute2",
    "procps",
    "catatonit",
    "libpam-systemd",
    "dbus-user-session",
)
WHEELS = ("pip", "setuptools", "wheel", "numpy")
WHEELS_PYTHON = "3.11"  # what bookworm's python3 is
USER = "researcher"
_RECIPE = 1  # raise when _make_root or _make_wheels changes


class HostImageError(RuntimeError):
    """A layer could not be made: a tool is missing, or it failed (its last lines are in the message)."""


def cache_dir() -> Path:
    """Folder of the layers: ``${XDG_CACHE_HOME:-~/.cache}/monkey-tests``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "monkey-tests"


def layers() -> list[Path]:
    """The layers, uppermost first, made when they are not there yet. Raises HostImageError."""
    return [_layer("wheels", [*WHEELS, WHEELS_PYTHON], _make_wheels), _layer("root", [SUITE, *PACKAGES], _make_root)]


def _layer(kind: str, parts: list[str], make: object) -> Path:
    key = hashlib.sha256(json.dumps([_RECIPE, platform.machine(), *parts]).encode()).hexdigest()[:12]
    target = cache_dir() / f"{kind}-{key}"
    if target.is_dir():
        return target
    with _lock(cache_dir() / f"{kind}.lock"):
        if target.is_dir():  # another session made it while we waited
            return target
        sys.stderr.write(f"test hosts: making {target} (once)\n")
        unfinished = target.with_suffix(".unfinished")
        _remove(unfinished)
        unfinished.mkdir(parents=True)
        make(unfinished)  # type: ignore[operator]
        unfinished.rename(target)
    return target


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    # A killed debootstrap leaves its /proc mounted inside: never delete through a mount.
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        point = line.split()[1]
        if point.startswith(f"{folder}/"):
            _run(["umount", "-l", point])
    shutil.rmtree(folder, ignore_errors=False) if folder.exists() else None


def _make_root(folder: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise HostImageError("debootstrap is not installed (Debian package debootstrap)")
    _run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(folder)])
    _run(["chroot", str(folder), "useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", USER])
    (folder / "etc/resolv.conf").write_text("")  # a host knows no name server: nothing leaks out, nothing waits for one
    linger = folder / "var/lib/systemd/linger" / USER
    linger.parent.mkdir(parents=True, exist_ok=True)
    linger.touch()
    # Timers of the package manager and the clock would only take CPU from tests.
    wants = folder / "etc/systemd/system/timers.target.wants"
    for unit in wants.iterdir() if wants.is_dir() else ():
        unit.unlink()
    for archive in (folder / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def _make_wheels(folder: Path) -> None:
    wheels = folder / "wheels"
    wheels.mkdir()
    machine = platform.machine()
    platforms = [f"--platform={tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux2014")]
    pip_download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    wanted = ["--only-binary=:all:", f"--python-version={WHEELS_PYTHON}", "--implementation=cp", *platforms, *WHEELS]
    _run([*pip_download, f"--dest={wheels}", *wanted])
    (folder / "etc").mkdir()
    settings = ("[global]", "no-index = true", "find-links = /wheels", "disable-pip-version-check = true", "")
    (folder / "etc/pip.conf").write_text("\n".join(settings))


def _run(argv: list[str]) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-8:])
        raise HostImageError(f"{argv[0]} failed with exit code {done.returncode}: {tail}")
