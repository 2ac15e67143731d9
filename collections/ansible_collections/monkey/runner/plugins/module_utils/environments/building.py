"""Building something once on a host: the lock, the mark of completeness, and the log of the tools that build."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from typing import Any, Callable, Iterator

from .errors import EnvironmentBuildError

TAIL_LINES = 20
_TAIL_BYTES = 64 * 1024
COMPLETE = ".complete"


class BuildLog:
    """The file that takes what the tools of one build print, and the tools' runs.

    ``lock_fd`` is handed down to them: when this process is killed, the lock holds until its tool has ended too, so
    that nobody builds in a folder in which an orphan still writes.
    """

    def __init__(self, path: str, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd
        with open(path, "wb"):
            os.chmod(path, 0o600)

    def note(self, text: str) -> None:
        """Write a line of our own."""
        with open(self.path, "ab") as log:
            log.write((text + "\n").encode("utf-8", "surrogateescape"))

    def run(self, argv: list[str], *, cwd: str, extra_env: dict[str, str] | None = None) -> int:
        """Run one tool with its output into the log; return its exit code (128 + N when signal N ended it).

        Raises EnvironmentBuildError when it cannot be started.
        """
        self.note("$ " + " ".join(argv))
        try:
            with open(self.path, "ab") as log:
                done = subprocess.run(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env={**os.environ, **(extra_env or {})},
                    pass_fds=(self._lock_fd,),
                    check=False,
                )
        except OSError as error:
            raise EnvironmentBuildError(f"{argv[0]} cannot be started: {error.strerror}", self.tail()) from error
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the log as text; bytes that are not UTF-8 are replaced."""
        with open(self.path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])


@contextlib.contextmanager
def locked(path: str) -> Iterator[int]:
    """Hold the lock file ``path`` (made when missing, mode 0600); wait for whoever holds it. Yields its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Who held it may have removed the whole folder: a lock on a file that has no name guards nothing.
            if _same_file(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _same_file(path: str, descriptor: int) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def prepare(home: str) -> str:
    """Make the client's home (mode 0700) and its folder of environments; return the latter's path."""
    envs = os.path.join(home, "envs")
    os.makedirs(home, mode=0o700, exist_ok=True)
    os.makedirs(envs, mode=0o700, exist_ok=True)
    return envs


def is_complete(folder: str, needs: str) -> bool:
    """Tell whether ``folder`` holds an environment that was built to the end and whose program ``needs`` still runs.

    A system upgrade that takes the interpreter away leaves a dangling link: such an environment is built again.
    """
    return os.path.exists(os.path.join(folder, COMPLETE)) and os.access(os.path.join(folder, needs), os.X_OK)


def build_folder(
    home: str, name: str, needs: str, build: Callable[[str, str, BuildLog], dict[str, Any]]
) -> tuple[bool, str]:
    """Build ``home/envs/name`` unless it is complete; return (whether it was built now, last lines of the log).

    ``build(folder, work, log)`` makes the folder, in place, and returns what to record about it; ``work`` is a private
    folder that is removed afterwards. Raises what ``build`` raises; nothing that counts as built is left then.
    """
    envs = prepare(home)
    folder = os.path.join(envs, name)
    if is_complete(folder, needs):
        return False, ""
    work = folder + ".work"
    with locked(folder + ".lock") as lock_fd:
        if is_complete(folder, needs):
            return False, ""
        _remove(folder)
        _remove(work)
        os.mkdir(work, 0o700)
        log = BuildLog(folder + ".log", lock_fd)
        try:
            record = build(folder, work, log)
            if not os.access(os.path.join(folder, needs), os.X_OK):
                raise EnvironmentBuildError(f"{os.path.join(folder, needs)} is missing after the build", log.tail())
            _mark_complete(folder, record)
        except BaseException:
            _remove(folder)
            raise
        finally:
            _remove(work)
        return True, log.tail()


def _mark_complete(folder: str, record: dict[str, Any]) -> None:
    temporary = os.path.join(folder, COMPLETE + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({**record, "built_at": time.time()}, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, os.path.join(folder, COMPLETE))


def _remove(folder: str) -> None:
    if not os.path.lexists(folder):
        return
    # The mark first: a removal that is cut off must not leave half a folder that counts as complete.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(folder, COMPLETE))
    if os.path.islink(folder) or not os.path.isdir(folder):
        os.unlink(folder)
    else:
        shutil.rmtree(folder)
