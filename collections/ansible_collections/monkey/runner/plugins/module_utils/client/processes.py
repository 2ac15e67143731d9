"""Finding and signalling all processes of an attempt, from /proc (proc(5)).

A process belongs to an attempt when it descends from its keeper, is a member of a session that the keeper made, or
carries the attempt's token in its environment. A keeper is a child subreaper (prctl(2)), so that what forked twice and
left its session is still its descendant. Start times guard against process numbers that were used again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
TOKEN = "MONKEY_ATTEMPT_TOKEN"


class Process(NamedTuple):
    """A line of /proc/PID/stat; ``start`` in clock ticks since boot."""

    pid: int
    ppid: int
    session: int
    start: int
    state: str


Identity = Tuple[int, int]


def look(pid: int) -> Optional[Process]:
    """One process; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            data = handle.read()
    except OSError:
        return None
    fields = data[data.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode("ascii"))


def scan() -> Dict[int, Process]:
    """All processes that can be seen."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = look(int(name))
            if process:
                found[process.pid] = process
    return found


def identity(pid: int) -> Identity:
    """(pid, start time) of a process; start time 0 when it is gone."""
    process = look(pid)
    return pid, process.start if process else 0


def alive(who: Optional[Identity]) -> bool:
    """Whether this very process lives; a zombie does not."""
    process = look(who[0]) if who and who[0] else None
    return process is not None and who is not None and process.start == who[1] and process.state not in "ZX"


def send(who: Identity, number: int) -> bool:
    """Signal this very process and none that got its number later; False when it is gone or not ours."""
    try:
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            descriptor = os.pidfd_open(who[0])
            try:
                if identity(who[0]) != who:
                    return False
                signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)
            return True
    except ProcessLookupError:
        return False
    except OSError:
        pass  # a kernel before 5.3
    if identity(who[0]) != who:
        return False
    try:
        os.kill(who[0], number)
    except OSError:
        return False
    return True


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            return mark in handle.read().split(b"\0")
    except OSError:
        return False


def close_all_but(keep: Set[int]) -> None:
    """Close every descriptor of this process that is not in ``keep``."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                pass


def become_subreaper() -> None:
    """Orphaned descendants become children of this process. Best effort: without it tokens and sessions still tell."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def die_with(parent: int) -> None:
    """Be killed when this process's parent dies, now if it did already; stopped or not. Best effort."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)


def set_title(title: str) -> None:
    """Show ``title`` in ps, by writing over the memory of argv (fields 48 and 49 of /proc/self/stat). Best effort."""
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_NAME, title.split(maxsplit=1)[0].encode()[:15], 0, 0, 0)
        with open("/proc/self/stat", "rb") as handle:
            data = handle.read()
        fields = data[data.rindex(b")") + 2 :].split()
        start, end = int(fields[45]), int(fields[46])
        if 0 < start < end and end - start < 1 << 20:
            size = end - start
            ctypes.memmove(start, title.encode()[: size - 1].ljust(size, b"\0"), size)
    except (OSError, AttributeError, ValueError, IndexError):
        pass


class Tree:
    """The processes of one attempt."""

    def __init__(self, token: str) -> None:
        self._mark = f"{TOKEN}={token}".encode("ascii")
        # Roots that are no members themselves (keepers) and sessions, by number and start time.
        self.keepers: Set[Identity] = set()
        self.sessions: Set[Identity] = set()
        self.strays: Set[Identity] = set()

    def members(self, with_zombies: bool = False) -> List[Process]:
        """Who lives of the tree now, never this process."""
        everyone = scan()
        keepers = {pid for pid, start in self.keepers if pid in everyone and everyone[pid].start == start}
        sessions = set()
        for leader, start in self.sessions:
            # A session's number is not used again while it has members; if its leader has another start time, it was.
            if leader not in everyone or everyone[leader].start == start:
                sessions.add(leader)
        inside = {pid for pid, start in self.strays if pid in everyone and everyone[pid].start == start}
        me = os.getpid()
        for process in everyone.values():
            if process.session in sessions or (process.state not in "ZX" and _carries(process.pid, self._mark)):
                inside.add(process.pid)
        outside = {1, 2, me} | keepers
        children: Dict[int, List[int]] = {}
        for process in everyone.values():
            children.setdefault(process.ppid, []).append(process.pid)
        waiting = [child for root in keepers | (inside - outside) for child in children.get(root, ())]
        inside -= outside
        while waiting:
            pid = waiting.pop()
            if pid not in inside and pid not in outside:
                inside.add(pid)
                waiting.extend(children.get(pid, ()))
        return [everyone[pid] for pid in inside if with_zombies or everyone[pid].state not in "ZX"]

    def signal(self, number: int) -> int:
        """Signal all; how many there were."""
        found = self.members()
        for process in found:
            send((process.pid, process.start), number)
        return len(found)

    def pause(self) -> None:
        """SIGSTOP all, also those that appear meanwhile."""
        for _round in range(100):
            running = [process for process in self.members() if process.state not in "Tt"]
            if not running:
                return
            for process in running:
                send((process.pid, process.start), signal.SIGSTOP)
            time.sleep(0.002)

    def resume(self) -> None:
        """SIGCONT all."""
        self.signal(signal.SIGCONT)

    def end(self, grace_s: float, meanwhile: Callable[[float], None]) -> int:
        """End all: SIGTERM, after ``grace_s`` SIGKILL until none is left; how many there were at the start.

        ``meanwhile(seconds)`` waits and reaps. Stopped processes are continued, so that they see the SIGTERM.
        """
        first = self.signal(signal.SIGTERM)
        if not first:
            return 0
        self.resume()
        deadline = time.monotonic() + grace_s
        pause_s = 0.005
        while time.monotonic() < deadline:
            meanwhile(min(pause_s, max(0.0, deadline - time.monotonic())))
            if not self.members():
                return first
            pause_s = min(pause_s * 1.5, 0.1)
        pause_s = 0.002
        while self.signal(signal.SIGKILL):
            meanwhile(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)
        return first
