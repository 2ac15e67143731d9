"""How a keeper starts what runs for its attempt: each in a session of its own, found again by number and start time."""

from __future__ import annotations

import os
import signal
import time
import traceback
from typing import Callable, Dict, List, NamedTuple

from . import command
from .attempt import Attempt
from .files import boot_seconds, write_all, write_json
from .processes import Identity, Tree, die_with, identity
from .watching import Watch

# What Python or this program handles in another way than a command expects.
# Also what the daemon's own starter ignored: a shell's background job ignores SIGINT and SIGQUIT.
_RESET = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


class Spawned(NamedTuple):
    """A program that was started: who, when (also since boot), and why it cannot be executed (errno, or 0)."""

    who: Identity
    started_at: float
    boot_s: float
    error_number: int


class Spawner:
    """Starts processes of one attempt. ``lock``: the keeper's, which they must not hold."""

    def __init__(self, attempt: Attempt, lock: int, umask: int, tree: Tree, watch: Watch) -> None:
        self._attempt = attempt
        self._lock = lock
        self._umask = umask
        self._tree = tree
        self._watch = watch

    def work(self, child: Callable[[], None], log: int) -> Identity:
        """Run ``child`` in a process that never outlives this one; what it writes goes to the log. Raises OSError."""
        keeper = os.getpid()

        def bound() -> None:
            die_with(keeper)
            child()

        return self._fork(bound, log)

    def program(self, argv: List[str], env: Dict[str, str], log: int, record: str) -> Spawned:
        """Start a program, recorded in the file ``record`` of the attempt. Raises OSError.

        It is executed only after its number is on record, so that whatever runs can be found again.
        """
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        bad_read, bad_write = os.pipe2(os.O_CLOEXEC)

        def child() -> None:
            os.close(go_write)
            if os.read(go_read, 1) != b"g":
                os._exit(126)
            try:
                command.execute(argv, env, self._attempt.path("work"))
            except OSError as error:
                os.write(bad_write, str(error.errno).encode("ascii"))
            os._exit(126)

        try:
            who = self._fork(child, log)
            os.close(bad_write)
            bad_write = -1
            started_at = time.time()
            boot_s = boot_seconds()
            note = {"pid": who[0], "start": who[1], "started_at": started_at, "boot_s": boot_s}
            write_json(self._attempt.path(record), note)
            write_all(go_write, b"g")
            said = os.read(bad_read, 16)
        finally:
            for descriptor in (go_read, go_write, bad_read, bad_write):
                if descriptor >= 0:
                    os.close(descriptor)
        return Spawned(who, started_at, boot_s, int(said or 0))

    def _fork(self, child: Callable[[], None], log: int) -> Identity:
        pid = os.fork()
        if pid == 0:
            try:
                os.close(self._lock)
                signal.set_wakeup_fd(-1)
                for number in _RESET:
                    signal.signal(number, signal.SIG_DFL)
                os.umask(self._umask)
                os.setsid()
                os.dup2(log, 1)
                os.dup2(log, 2)
                child()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(126)
        self._watch.expect(pid)
        who = identity(pid)
        self._tree.sessions.add(who)
        return who
