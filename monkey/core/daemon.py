"""The core's wiring, and what the API may ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import time
from collections.abc import Coroutine
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS

from monkey.core.changes import Changes
from monkey.core.collecting import Collector
from monkey.core.deadlines import DEADLINE, PHASE, passed
from monkey.core.dispatch import Dispatcher
from monkey.core.ending import conclude
from monkey.core.follow import Follower
from monkey.core.hosts import HostBoard, why_failed
from monkey.core.launching import Launcher
from monkey.core.leases import Leases
from monkey.core.live import LiveJobs
from monkey.core.livehost import LiveHost
from monkey.core.orders import Orders
from monkey.core.requests import Requests
from monkey.core.wave import need
from monkey.engine import Engine
from monkey.errors import UsageProblem
from monkey.jobs import Job, JobBook
from monkey.logs import LogBook
from monkey.paths import Home
from monkey.providers import ProviderBook, core_id
from monkey.providers.book import LOCAL
from monkey.states import DEADLINES, LIVE, Deadline, State
from monkey.store import Store, StoreFullError
from monkey.version import __version__

log = logging.getLogger("monkey.core")

_STOP_WITHIN_S = 10.0
# While the disk is full nothing is dispatched; whether there is room again is looked at so often.
_FULL_AGAIN_S = 2.0
# A step that failed is not tried again at once.
_FAILED_AGAIN_S = 1.0
_LONGEST_SLEEP_S = 3600.0
_TAKEN_UP_AT_ONCE = 1000


class Core:
    """One main node's core; lives in one event loop, which is the only writer of the store.

    Args:
        home: its MONKEY_HOME.
        store: its record, open.
    """

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.fs = MonkeyFS(home.monkeyfs)
        self.book = ProviderBook(home)
        self.logs = LogBook(home.jobs)
        self.changes = Changes()
        self.jobs = JobBook(store, self._changed)
        self.live = LiveJobs(need, self.jobs.state_of)
        self.engine = Engine(home.runs)
        self.board = HostBoard(self.book, store, self.live, self.engine, core_id(home), self.wake)
        self.orders = Orders(self.board, self.spawn)
        self.leases = Leases(self.board, self.jobs, self.live, self.spawn)
        self.board.listener = Follower(
            self.board, self.jobs, self.live, self.logs, self.orders, self.leases, self.wake
        )
        self.launcher = Launcher(
            self.board, self.jobs, self.logs, self.engine, self.orders, home.monkeyfs, self.spawn
        )
        self.dispatcher = Dispatcher(self.board, self.jobs, self.live, self.launcher, store)
        self.jobs.why_waits = self._why_waits
        self.collector = Collector(
            self.board, self.jobs, self.live, self.engine, home.monkeyfs, self.spawn, self.wake
        )
        self.requests = Requests(self)
        self.stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._checking: set[str] = set()
        self._started_at = time.monotonic()

    # The loop

    async def run(self) -> None:
        """Reattach, then schedule until told to stop."""
        await asyncio.to_thread(self.engine.end_leftovers)
        self.board.load()
        await self._take_up()
        self.board.connect_all()
        self.collector.load()
        while not self.stopping.is_set():
            self._woken.clear()
            again_s = self._turn()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), again_s)
        await self._wind_down()

    async def _take_up(self) -> None:
        """The picture of the jobs that have not ended; meanwhile the API answers."""
        # 100,000 jobs are a million objects that stay: looking through them for garbage would take half of the time.
        gc.disable()
        try:
            jobs = self.jobs.in_states(*LIVE)
            while some := list(itertools.islice(jobs, _TAKEN_UP_AT_ONCE)):
                self.live.load(some)
                await asyncio.sleep(0)
        finally:
            gc.enable()
        gc.freeze()

    def _turn(self) -> float:
        """One look at everything; seconds until the next one, should nothing happen before."""
        if self.store.is_full and not self.store.probe_room():
            return _FULL_AGAIN_S
        try:
            self.look_at_hosts()
            self.leases.step()
            self._timers()
            self.dispatcher.step()
            self.collector.step()
            return self._sleep_s()
        except StoreFullError as error:
            log.error("nothing is dispatched until there is room: %s", error)
            return _FULL_AGAIN_S
        except Exception:
            log.exception("scheduler")
            return _FAILED_AGAIN_S

    def _sleep_s(self) -> float:
        clock = asyncio.get_running_loop().time()
        timer = self.live.timers.next()
        due = [
            None if timer is None else timer - self.live.clock(),
            self.leases.next_due(),
            *(None if at is None else at - clock for at in (self.board.next_due(), self.collector.next_due())),
            self.dispatcher.next_due(),
        ]
        return max(0.01, min((s for s in due if s is not None), default=_LONGEST_SLEEP_S))

    def wake(self) -> None:
        """Have the scheduler look again."""
        self._woken.set()

    def stop_soon(self) -> None:
        """Stop; jobs on hosts go on, the next core takes them up."""
        self.stopping.set()
        self.changes.close()
        self.wake()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the loop; what goes wrong in it is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            log.error("a task failed", exc_info=task.exception())
        self.wake()

    async def _wind_down(self) -> None:
        self.engine.cancel_all()
        with contextlib.suppress(Exception):
            await self.leases.before_stop()
        await self.board.disconnect(self.board.all())
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_STOP_WITHIN_S)

    def _timers(self) -> None:
        """Pauses that are over, and jobs that stayed too long where they are."""
        now = self.live.clock()
        for juid, what in self.live.timers.pop(now):
            job = self.jobs.get(juid)
            if what not in {DEADLINE, PHASE}:
                self.dispatcher.recovered(juid)
                continue
            host = self.board.of(job)
            limit = DEADLINES[State(job["state"])]
            heard_at = max(self._started_at, host.heard_at if host else 0.0)
            if what == DEADLINE and limit.counts_from == "last_heard" and now - heard_at < limit.seconds:
                self.live.postpone(juid, heard_at + limit.seconds)
            else:
                self._end_overdue(job, passed(job, what))

    def _end_overdue(self, job: Job, over: Deadline) -> None:
        juid, state = job["juid"], State(job["state"])
        log.warning("%s stayed too long in %s: %s", juid, state, over.reason)
        if state == State.CLEANUP:
            conclude(self.jobs, juid, note="Its results could not be brought back in time.")
        elif state == State.PAUSED:
            # Its processes are there and stopped: they are ended like those of any cancelled job.
            self.orders.give("cancel", self.jobs.change(juid, None, over.reason, cancel_requested=True))
        elif state == State.DISPATCHING:
            self.launcher.abandon_all(juid)
            self.orders.give("cancel", job)
            conclude(self.jobs, juid, {"state": over.then, "reason": str(over.reason), "message": None})
        else:
            self.orders.give("cancel", job)
            self.jobs.change(juid, over.then, over.reason, phase=None)

    def look_at_hosts(self) -> None:
        """Look at hosts that are new, or did not answer when they were looked at last."""
        self.board.resume_steady()
        for name, hosts in self.board.to_probe().items():
            if name not in self._checking:
                self._checking.add(name)
                self.spawn(self._check(name, hosts))

    def is_checking(self, provider: str) -> bool:
        """Whether hosts of a provider are being looked at."""
        return provider in self._checking

    async def _check(self, provider: str, hosts: list[LiveHost]) -> None:
        try:
            await self.board.check(self.book.get(provider), hosts)
        finally:
            self._checking.discard(provider)

    def _changed(self, job: Job) -> None:
        self.live.note(job)
        self.changes.tell(job)
        self.logs.wake(job["juid"])
        if job["on_host"]:
            self.collector.noted(job)
        self.wake()

    def _why_waits(self, job: Job) -> tuple[str, str] | None:
        why = self.dispatcher.why(job)
        return (why.reason, why.message) if why else None

    # What the API asks

    def status(self) -> dict[str, Any]:
        """``core status``."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_s": round(time.monotonic() - self._started_at, 1),
            "home": str(self.home.root),
            "jobs": self.jobs.counts(),
            "full": self.store.is_full,
        }

    async def collect_now(self, juid: str) -> list[dict[str, Any]]:
        """Persisted folders as they are now; those fetched last where there is nothing newer."""
        return await self.collector.now(juid)

    # Providers

    async def provider_removed(self, name: str) -> dict[str, str]:
        """Take a provider out, and the client off its hosts; refused while jobs are there.

        Returns:
            Hosts that could not be cleared, with the reason.

        Raises:
            UsageProblem: live jobs, or no such provider, or it is `local`.
        """
        provider = self.book.get(name)
        if name == LOCAL:
            raise UsageProblem("provider", "local is always there and cannot be removed")
        live = [juid for juid in self.live.in_state(*LIVE) if self.jobs.get(juid)["provider"] == name]
        if live:
            raise UsageProblem("provider", f"{name} still has {len(live)} jobs that have not ended, such as {live[0]}")
        hosts = self.board.all(name)
        installed = {host.entry.name: host.entry for host in hosts if host.installed}
        await self.board.disconnect(hosts)
        left: dict[str, str] = {}
        if installed:
            inventory = provider.write_inventory()
            result = await asyncio.to_thread(self.engine.run, "remove_client", inventory, limit=list(installed))
            outcomes = {entry.name: (result.host(entry.name), entry) for entry in installed.values()}
            left = {key: why_failed(outcome, entry) for key, (outcome, entry) in outcomes.items() if not outcome.ok}
        self.book.remove(name)
        self.board.forget(name)
        return left

