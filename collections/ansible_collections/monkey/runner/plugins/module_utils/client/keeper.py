"""The keeper: one process per attempt, forked by the daemon, that lives on when the daemon dies.

It makes the work folder, runs the setup lines and the command, holds its limits, ends what is left of its tree, and
writes exit.json. A keeper that takes the place of a killed one follows the command by its number and start time.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import traceback
from typing import Any, Callable, Optional

from ..monkeyfs.folders import remove
from . import command, control, workdir
from .attempt import Attempt
from .files import FULL, ClientError, boot_id, read_json, tail, write_all, write_json
from .machine import disk_full_message
from .processes import Identity, Tree, become_subreaper, close_all_but, identity, set_title
from .spawning import Spawner
from .watching import Ended, Stop, Watch, signal_name

_ENGINE_TIMEOUT_S = 60.0
# How a child says that the disk is full.
_BUILD_FULL = 28
_LINE = 600


def fork(attempt: Attempt, lock: int, umask: int, leave_daemon: Callable[[], None]) -> int:
    """Start a keeper that holds ``lock``; its pid. ``leave_daemon`` closes what the daemon has open. Raises OSError."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        gc.disable()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        leave_daemon()
        close_all_but({0, 1, 2, lock})
        become_subreaper()
        set_title(f"monkey-job {attempt.key}")
        Keeper(attempt, lock, umask).run()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
    return 0


class Keeper:
    """Keeps one attempt. Everything it knows it has from the attempt's files."""

    def __init__(self, attempt: Attempt, lock: int, umask: int) -> None:
        self._attempt = attempt
        self._umask = umask
        self._spec = attempt.spec()
        self._start = attempt.read("start.json")
        self._tree = Tree(self._start["token"])
        self._tree.keepers.add(identity(os.getpid()))
        self._started_at: Optional[float] = None
        self._watch = Watch(attempt, self._spec, self._tree)
        self._spawner = Spawner(attempt, lock, umask, self._tree, self._watch)
        self._docker = self._spec["environment"]["kind"] == "docker"

    def run(self) -> None:
        """Keep the attempt until its exit.json is written."""
        earlier = self._attempt.has("keeper.json") or self._start["boot"] != boot_id()
        try:
            self._sign(earlier)
            if self._attempt.exit() is None:
                if earlier:
                    self._take_over()
                else:
                    self._first()
        except ClientError as error:
            self._finish("FAILED_SETUP", "SETUP_FAILED", str(error))
        except OSError as error:
            if error.errno not in FULL:
                self._finish("FAILED_SETUP", "SETUP_FAILED", f"The host cannot set the job up: {error}")
            else:
                self._disk_full()
        control.wake(self._attempt.home, self._attempt.key)

    def _sign(self, earlier: bool) -> None:
        pid, start = identity(os.getpid())
        try:
            write_json(self._attempt.path("keeper.json"), {"pid": pid, "start": start, "boot": boot_id()})
        except OSError:
            if not earlier:
                raise

    # --- the way of a new attempt

    def _first(self) -> None:
        log = os.open(self._attempt.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if not self._make_work(log) or not self._run_setup(log):
            return
        argv, env = command.plan(self._attempt, self._spec, self._start)
        if not self._may_go_on():
            return
        spawned = self._spawner.program(argv, env, log, "command.json")
        self._started_at, self._watch.started = spawned.started_at, spawned.boot_s
        control.wake(self._attempt.home, self._attempt.key)
        if spawned.error_number:
            self._cannot_start(argv[0], spawned.error_number, log)
            return
        os.close(log)
        ended, stop = self._watch.until_end(spawned.who)
        self._conclude(spawned.who, ended, stop)

    def _may_go_on(self) -> bool:
        """Between two steps: wait while it is paused; False when it was ended instead."""
        stop = self._watch.until_free()
        if stop is not None:
            self._conclude(None, None, stop)
        return stop is None

    def _make_work(self, log: int) -> bool:
        home = self._attempt.home

        def build() -> None:
            workdir.build(home, self._attempt.path("work"), self._spec)

        def fetch() -> None:
            for item in self._spec["data"]:
                workdir.ensure_data(home, item["tree"])

        if workdir.nothing_to_write(self._spec):
            if not self._may_go_on():
                return False
            old = os.umask(self._umask)
            build()
            os.umask(old)
            return True
        # Other attempts wait for a data set that this one writes out: to stop it there would stop them.
        if self._spec["data"] and not self._in_child(fetch, log, stoppable=False):
            return False
        return self._in_child(build, log)

    def _in_child(self, step: Callable[[], None], log: int, stoppable: bool = True) -> bool:
        """Do ``step`` in a child, so that orders are heard while gigabytes are written; whether to go on."""
        if not self._may_go_on():
            return False
        said = self._attempt.path("tmp.said")

        def child() -> None:
            try:
                step()
            except (ClientError, OSError) as error:
                full = isinstance(error, OSError) and error.errno in FULL
                if not full:
                    write_json(said, {"error": str(error)})
                os._exit(_BUILD_FULL if full else 1)
            os._exit(0)

        who = self._spawner.work(child, log)
        self._watch.stoppable = stoppable
        ended, stop = self._watch.until_end(who)
        self._watch.stoppable = True
        if stop is not None:
            self._conclude(who, None, stop)
            return False
        if ended is not None and ended.status == 0:
            return True
        if ended is not None and ended.code() == _BUILD_FULL:
            self._disk_full()
            return False
        error = (read_json(said) or {}).get("error") or "The work folder could not be made: see the log."
        self._finish("FAILED_SETUP", "SETUP_FAILED", error)
        return False

    def _run_setup(self, log: int) -> bool:
        if not self._spec["setup"] or self._docker:
            return True
        if not self._may_go_on():
            return False
        env = command.environment(self._attempt, self._spec, self._start)
        argv = ["/bin/sh", "-e", "-c", "\n".join(self._spec["setup"])]
        spawned = self._spawner.program(argv, env, log, "setup.json")
        if spawned.error_number:
            raise ClientError(f"/bin/sh cannot be started: {os.strerror(spawned.error_number)}")
        ended, stop = self._watch.until_end(spawned.who)
        if stop is None and ended is not None and ended.status == 0:
            return True
        if stop is not None:
            self._conclude(spawned.who, None, stop)
        else:
            self._end_tree()
            self._setup_failed(ended)
        return False

    def _setup_failed(self, ended: Optional[Ended]) -> None:
        code = ended.code() if ended else None
        last = tail(self._attempt.path("log"), lines=10)
        self._finish("FAILED_SETUP", "SETUP_FAILED", f"Setup ended with exit code {code}. Its last lines:\n{last}")

    def _cannot_start(self, program: str, error_number: int, log: int) -> None:
        code = command.exit_code_of(error_number)
        why = "command not found" if code == 127 else os.strerror(error_number)
        message = f"{program[:_LINE]}: {why}"
        try:
            write_all(log, f"monkey: {message}\n".encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # a full disk
        self._end_tree()
        self._finish("FAILED", "COMMAND_NOT_FOUND", message, exit_code=code)

    # --- the way of one whose keeper was killed, or whose machine was started again

    def _take_over(self) -> None:
        running = self._attempt.read("command.json")
        setup = self._attempt.read("setup.json")
        if self._start["boot"] != boot_id():
            self._finish("LOST", "EXIT_UNKNOWN", "The host was started again while it ran; how it ended is unknown.")
            return
        self._tree.sessions.update((found["pid"], found["start"]) for found in (running, setup) if found)
        self._tree.strays.update((pid, start) for pid, start in self._attempt.read("strays.json").get("pids", []))
        if not running:
            stop = self._watch.why_stop()
            if stop is not None:
                self._conclude(None, None, stop)
                return
            self._end_tree()
            text = "Its keeper was killed before the command started; it was not started again."
            self._finish("LOST", "EXIT_UNKNOWN", text)
            return
        who = (running["pid"], running["start"])
        self._started_at = running["started_at"]
        self._watch.started = running["boot_s"]
        ended, stop = self._watch.until_end(who, child=False)
        self._conclude(who, ended, stop)

    # --- ending

    def _end_tree(self, stop: Optional[Stop] = None) -> None:
        def meanwhile(seconds: float) -> None:
            self._watch.sleep(seconds)
            self._watch.hold_quota()

        self._tree.end(self._watch.grace_s(stop), meanwhile)
        if self._docker:
            self._remove_container()
            self._tree.end(0.0, meanwhile)

    def _remove_container(self) -> None:
        try:
            subprocess.run(
                [command.engine(self._spec), "rm", "-f", command.container_name(self._attempt)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_ENGINE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, ClientError) as error:
            sys.stderr.write(f"{self._attempt.key}: container not removed: {error}\n")

    def _conclude(self, who: Optional[Identity], ended: Optional[Ended], stop: Optional[Stop]) -> None:
        self._end_tree(stop)
        if stop is not None and who is not None:
            ended = self._watch.after_stop(who)
        code = ended.code() if ended else None
        number = ended.signal() if ended else None
        fields = {"exit_code": code, "signal": number, "max_rss_mb": ended.max_rss_mb if ended else None}
        if stop is not None:
            self._finish(stop.state, stop.reason, stop.message, **fields)
        elif code is None:
            text = "It ended while its keeper was dead, so its exit code is unknown; its log may tell."
            self._finish("LOST", "EXIT_UNKNOWN", text, **fields)
        elif self._container_never_ran(code):
            self._setup_failed(ended)
        elif number is not None:
            self._finish("FAILED", "SIGNALLED", f"Killed by signal {number} ({signal_name(number)}).", **fields)
        elif code:
            self._finish("FAILED", "NONZERO_EXIT", f"Exited with code {code}; its log may tell why.", **fields)
        else:
            self._finish("SUCCEEDED", "EXITED", "Exited with code 0.", **fields)

    def _container_never_ran(self, code: int) -> bool:
        if not self._docker or not code:
            return False
        undone = bool(self._spec["setup"]) and not os.path.exists(command.setup_mark(self._attempt))
        return undone or code == command.ENGINE_ERROR

    def _disk_full(self) -> None:
        self._end_tree()
        try:
            remove(self._attempt.path("work"))
        except OSError:
            pass
        self._finish("FAILED_SETUP", "DISK_FULL", disk_full_message(self._attempt.home))

    def _finish(self, state: str, reason: str, message: str, **fields: Any) -> None:
        fields.setdefault("started_at", self._started_at)
        self._watch.hold_quota(now=True)
        while True:
            try:
                self._attempt.finish(state, reason, message, **fields)
                return
            except OSError as error:
                sys.stderr.write(f"{self._attempt.key}: exit.json: {error}\n")
                self._watch.sleep(1.0)
