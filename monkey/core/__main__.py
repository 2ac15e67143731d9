"""Runs the core in the foreground; ``monkey core start`` and the systemd unit start this."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

import uvicorn

from monkey.api.app import make_app
from monkey.core.daemon import Core
from monkey.errors import MonkeyError
from monkey.paths import Home, socket_address
from monkey.store import Store
from monkey.version import __version__

log = logging.getLogger("monkey.core")

ALREADY_RUNNING = 3


def main(argv: list[str] | None = None) -> int:
    """Exit code: 0 after a clean stop, 2 for a home that cannot be used, 3 when another core runs there."""
    parser = argparse.ArgumentParser(prog="python -m monkey.core", description=__doc__)
    parser.add_argument("--home", type=Path, help="MONKEY_HOME (default: the variable, else ~/.monkey)")
    home = Home.find(parser.parse_args(argv).home)
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        home.create()
        with contextlib.ExitStack() as stack:
            return asyncio.run(_serve(home, stack))
    except BlockingIOError:
        sys.stderr.write(f"monkey: core: another core runs in {home.root}\n")
        return ALREADY_RUNNING
    except (OSError, MonkeyError) as error:
        sys.stderr.write(f"monkey: core: {error}\n")
        return 2


async def _serve(home: Home, stack: contextlib.ExitStack) -> int:
    lock = stack.enter_context(home.lock.open("a"))
    _lock(lock.fileno())
    store = stack.enter_context(Store.open(home.root))
    core = Core(home, store)
    listener = stack.enter_context(_listen(home))
    config = uvicorn.Config(
        make_app(core), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, core.stop_soon)
    serving = asyncio.create_task(server._serve([listener]))
    _announce(home)
    log.info("core %s in %s, pid %d", __version__, home.root, os.getpid())
    try:
        await core.run()
    finally:
        # Gone from sight before the doors close: who asks next gets "not running", not half an answer.
        home.socket.unlink(missing_ok=True)
        server.should_exit = True
        await serving
        home.core_json.unlink(missing_ok=True)
    return 0


def _lock(descriptor: int) -> None:
    """The lock that makes two cores in one home impossible; held until the process ends."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _listen(home: Home) -> socket.socket:
    # The lock is ours, so a socket that lies here belongs to nobody.
    home.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_address(home.socket) as address:
        listener.bind(address)
    home.socket.chmod(0o600)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _announce(home: Home) -> None:
    temporary = home.core_json.with_suffix(".tmp")
    temporary.write_text(json.dumps({"pid": os.getpid(), "version": __version__, "started_at": time.time()}))
    temporary.replace(home.core_json)


if __name__ == "__main__":
    raise SystemExit(main())
