"""``python3 monkey-client.pyz daemon|stream|status --home DIR``."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import sys
import time
import traceback
from typing import List, Optional

# All of the program is imported at the start: the file may be replaced by another version while this one runs.
from . import control, daemon, machine, stream
from .files import ClientError, to_json
from .operations import listing
from .processes import close_all_but

_DEFAULT_HOME = "~/.monkey-client/default"
# A keeper that was just forked, or a daemon that is being killed, holds the lock for a moment.
_LOCK_PATIENCE_S = 3.0
_LOG_KEEP_BYTES = 1024 * 1024


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser(prog="monkey-client", description="Runs jobs on this host and reports.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.required = True
    for name, text in (
        ("daemon", "start the daemon of a home, unless one runs; it detaches"),
        ("stream", "report on stdout and take orders on stdin, in JSON lines"),
        ("status", "say what runs, as JSON"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--home", default=_DEFAULT_HOME, help="the client's folder (default: %(default)s)")
        if name == "daemon":
            command.add_argument("--foreground", action="store_true", help="do not detach")
            idle = "leave after this long without work and company (default: %(default)s)"
            command.add_argument("--idle-exit-s", type=float, default=daemon.IDLE_EXIT_S, metavar="SECONDS", help=idle)
    options = parser.parse_args(arguments)
    home = os.path.abspath(os.path.expanduser(options.home))
    try:
        if options.command == "daemon":
            os.makedirs(home, 0o700, exist_ok=True)
            idle_exit_s = options.idle_exit_s
            return _serve(home, None, idle_exit_s) if options.foreground else _detach(home, idle_exit_s)
        if not os.path.isdir(home):
            raise ClientError(f"--home: there is no folder {home}")
        if options.command == "stream":
            return stream.run(home, version())
        status = {"daemon": control.running(home), "machine": machine.now(home), "attempts": listing(home)}
        sys.stdout.write(to_json(status).decode("ascii") + "\n")
        return 0
    except ClientError as error:
        sys.stderr.write(f"monkey-client: {error}\n")
        return 2


def version() -> str:
    """The sha256 of the program that runs; ``source`` when it runs from a folder."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if not archive:
        return "source"
    with open(archive, "rb") as handle:
        return hashlib.sha256(handle.read()).hexdigest()


def _detach(home: str, idle_exit_s: float) -> int:
    """Fork into the background; return once the daemon answers, or with what hindered it."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end, "rb") as handle:
            said = handle.read().decode("utf-8", "replace")
        os.wait()
        if said.startswith("ok"):
            return 0
        sys.stderr.write(f"monkey-client: {said.strip() or 'the daemon died at once'}\n")
        return 1
    code = 1
    try:
        os.close(read_end)
        os.setsid()
        if os.fork():
            os._exit(0)
        _leave_session(home, write_end)
        code = _serve(home, write_end, idle_exit_s)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
    return code


def _leave_session(home: str, keep: int) -> None:
    """Hold nothing of the session that started us: no descriptor, no folder."""
    close_all_but({0, 1, 2, keep})
    log_path = os.path.join(home, "daemon.log")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if os.fstat(log).st_size > _LOG_KEEP_BYTES:
        os.replace(log_path, log_path + ".old")
        os.close(log)
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(log, 2)
    for descriptor in (null, log):
        if descriptor > 2:
            os.close(descriptor)
    os.chdir("/")


def _lock(home: str) -> Optional[int]:
    descriptor = os.open(os.path.join(home, "daemon.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if control.running(home):
                os.close(descriptor)
                return None
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ClientError("another daemon holds daemon.lock and does not answer") from None
            time.sleep(0.02)


def _serve(home: str, ready: Optional[int], idle_exit_s: float) -> int:
    """Be the daemon. ``ready``: where to say ``ok``, or what went wrong."""
    said = "ok\n"
    served = None
    umask = os.umask(0o077)
    try:
        os.chmod(home, 0o700)
        lock = _lock(home)
        if lock is not None:
            served = daemon.Daemon(home, version(), lock, umask, idle_exit_s)
    except (ClientError, OSError) as error:
        said = f"{error}\n"
        sys.stderr.write(said)
    if ready is not None:
        os.write(ready, said.encode("utf-8", "replace"))
        os.close(ready)
    if served is None:
        return 0 if said == "ok\n" else 1
    served.run()
    return 0
