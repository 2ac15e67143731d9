"""A core that kills itself at a chosen moment, or lacks one of its protections. The product has no hooks for this:
what is replaced here are functions at its edges.

    python lethal_core.py --home DIR [--die POINT] [--unsynced-is-lost] [--without sync|lock]

A POINT is ``WHAT:N:WHERE``: at the N-th WHAT since the start.

    write      a record is appended to the journal: before, half (of its bytes written), unsynced, synced (not applied)
    change     a job changes its state: before, after
    event      a host's event is heard: before it is recorded, after (not acknowledged yet); or one kind of it:
               event.accepted, event.started, event.ended …
    launched   a wave's playbook has ended well: before the core records that
    temporary  state.json.tmp is complete: half (of it is there)
    replace    state.json.tmp gets its name: before, after
    cut        the journal is cut: before, after

``--unsynced-is-lost``: as after a power failure, what was not synced is not in the file when the process is gone.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_JOURNAL = "/state.journal"
_TEMPORARY = "/state.json.tmp"


def die() -> NoReturn:
    """As by `kill -9`."""
    while True:
        os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Counts what happens, and says when to die.

    Args:
        point: ``WHAT:N:WHERE``, or None to live on.
    """

    def __init__(self, point: str | None) -> None:
        self.what, number, self.where = (point or "nothing:0:before").split(":")
        self._left = int(number)

    def comes(self, *whats: str) -> Callable[[str], bool]:
        """Something happens; the answer tells whether to die at a place of it."""
        if self.what in whats:
            self._left -= 1
            if self._left == 0:
                return lambda where: where == self.where
        return lambda where: False


class Disk:
    """The journal and the snapshot as the core writes them, through functions that stand in for those of ``os``."""

    def __init__(self, death: Death, *, unsynced_is_lost: bool = False, sync: bool = True) -> None:
        self._death = death
        self._holds_back = unsynced_is_lost
        self._syncs = sync
        self._held = b""
        self._now: Callable[[str], bool] = lambda where: False
        self._real = {name: getattr(os, name) for name in ("write", "fdatasync", "fsync", "ftruncate", "replace")}

    def install(self) -> None:
        """Take the place of the real functions in this process."""
        for name in self._real:
            setattr(os, name, getattr(self, name))

    def write(self, fd: int, data: Any) -> int:
        if not _is(fd, _JOURNAL):
            return int(self._real["write"](fd, data))
        self._now = self._death.comes("write")
        record = bytes(data)
        if self._now("before"):
            die()
        if self._now("half"):
            self._real["write"](fd, self._held + record[: len(record) // 2])
            die()
        if self._holds_back:
            self._held += record
        else:
            self._real["write"](fd, record)
        if self._now("unsynced"):
            die()
        return len(record)

    def fdatasync(self, fd: int) -> None:
        if not _is(fd, _JOURNAL):
            self._real["fdatasync"](fd)
            return
        if self._syncs:
            if self._held:
                self._real["write"](fd, self._held)
                self._held = b""
            self._real["fdatasync"](fd)
        if self._now("synced"):
            die()

    def fsync(self, fd: int) -> None:
        self._real["fsync"](fd)
        if _is(fd, _TEMPORARY) and self._death.comes("temporary")("half"):
            self._real["ftruncate"](fd, os.fstat(fd).st_size // 2)
            die()

    def ftruncate(self, fd: int, size: int) -> None:
        if not _is(fd, _JOURNAL):
            self._real["ftruncate"](fd, size)
            return
        now = self._death.comes("cut")
        if now("before"):
            die()
        # Cut back to before what is held, or into it: a refused record is undone, or everything is.
        kept = size - os.fstat(fd).st_size
        self._held = self._held[: max(kept, 0)]
        if kept < 0 or not self._holds_back:
            self._real["ftruncate"](fd, size)
        if now("after"):
            die()

    def replace(self, source: Any, target: Any, **options: Any) -> None:
        now = self._death.comes("replace") if str(source).endswith(_TEMPORARY) else lambda where: False
        if now("before"):
            die()
        self._real["replace"](source, target, **options)
        if now("after"):
            die()


def _is(fd: int, name: str) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").endswith(name)


def _around(owner: type, name: str, moments: Callable[..., tuple[str, ...]], death: Death) -> None:
    """Let a method count, by what ``moments`` makes of its arguments, and die before or after it."""
    real = getattr(owner, name)

    @functools.wraps(real)
    def counted(*args: Any, **options: Any) -> Any:
        now = death.comes(*moments(*args, **options))
        if now("before"):
            die()
        result = real(*args, **options)
        if now("after"):
            die()
        return result

    setattr(owner, name, counted)


def arm(death: Death) -> None:
    """Put the kill points into the core's parts."""
    from monkey.core.follow import Follower
    from monkey.engine import Engine
    from monkey.jobs import JobBook

    def changes(_book: Any, _juid: str, state: Any = None, *_rest: Any, **_fields: Any) -> tuple[str, ...]:
        return ("change",) if state is not None else ()

    def events(_follower: Any, _host: str, event: dict[str, Any]) -> tuple[str, ...]:
        return ("event", f"event.{event['type']}")

    _around(JobBook, "change", changes, death)
    _around(Follower, "on_event", events, death)
    real = Engine.run

    @functools.wraps(real)
    def run(engine: Engine, playbook: str, *args: Any, **options: Any) -> Any:
        result = real(engine, playbook, *args, **options)
        if playbook == "launch_wave" and result.status == "successful" and death.comes("launched")("before"):
            die()
        return result

    Engine.run = run  # type: ignore[method-assign]


def main() -> int:
    """Run the core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--die", metavar="POINT")
    parser.add_argument("--unsynced-is-lost", action="store_true")
    parser.add_argument("--without", choices=("sync", "lock"))
    asked = parser.parse_args()

    from monkey.core.__main__ import main as run_core

    death = Death(asked.die)
    Disk(death, unsynced_is_lost=asked.unsynced_is_lost, sync=asked.without != "sync").install()
    arm(death)
    if asked.without == "lock":
        fcntl.flock = lambda fd, operation: None  # type: ignore[assignment]
    return run_core(["--home", str(asked.home)])


if __name__ == "__main__":
    sys.exit(main())
