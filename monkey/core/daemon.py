"""The core's wiring, and what the API may ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS

from monkey import submit
from monkey.api.models import PlanBody, Submission
from monkey.core import dispatch
from monkey.core.collecting import Collector
from monkey.core.deadlines import overdue
from monkey.core.follow import Follower, finish
from monkey.core.hosts import HostBoard, host_key, why_failed
from monkey.engine import Engine
from monkey.errors import UsageProblem
from monkey.events import NotConnected
from monkey.jobs import Job, JobBook
from monkey.logs import LogBook
from monkey.paths import Home
from monkey.providers import ProviderBook, core_id
from monkey.providers.book import LOCAL
from monkey.scheduler import decide
from monkey.states import LIVE, Deadline, Reason, State
from monkey.store import Store
from monkey.version import __version__

log = logging.getLogger("monkey.core")

_LOOK_AGAIN_S = 2.0
_STOP_WITHIN_S = 10.0
_DEADLINES_EVERY_S = 60.0
_LOOKED_AT_WITHIN_S = 20.0


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
        self.jobs = JobBook(store, self._changed)
        self.engine = Engine(home.runs)
        self.board = HostBoard(self.book, store, self.jobs, self.engine, core_id(home), self.wake)
        cancel = self._cancel_on_host
        self.follower = Follower(self.board, self.jobs, self.logs, self.wake, cancel)
        self.board.listener = self.follower
        self.dispatcher = dispatch.Dispatcher(
            self.board, self.jobs, self.logs, self.engine, home.monkeyfs, self.spawn, cancel
        )
        self.collector = Collector(self.board, self.jobs, self.engine, home.monkeyfs, self.spawn, self.wake)
        self.stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._checking: set[str] = set()
        self._started_at = time.monotonic()
        self._began_at = time.time()
        self._deadlines_at = 0.0

    # The loop

    async def run(self) -> None:
        """Reattach, then schedule until told to stop."""
        await asyncio.to_thread(self.engine.end_leftovers)
        self.board.load()
        self.board.connect_all()
        self.collector.load()
        while not self.stopping.is_set():
            self._woken.clear()
            try:
                self._look_at_new_hosts()
                self.dispatcher.step()
                self.collector.step()
                self._enforce_deadlines()
            except Exception:
                log.exception("scheduler")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _LOOK_AGAIN_S)
        await self._wind_down()

    def wake(self) -> None:
        """Have the scheduler look again."""
        self._woken.set()

    def stop_soon(self) -> None:
        """Stop; jobs on hosts go on, the next core takes them up."""
        self.stopping.set()
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
        await self.board.disconnect(self.board.all())
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_STOP_WITHIN_S)

    def _enforce_deadlines(self) -> None:
        if time.monotonic() < self._deadlines_at:
            return
        self._deadlines_at = time.monotonic() + _DEADLINES_EVERY_S
        for job in self.jobs.in_states(*LIVE):
            host = self.board.of(job)
            passed = overdue(job, time.time(), max(self._began_at, host.heard_at if host else 0.0))
            if passed:
                self._end_overdue(job, passed)

    def _end_overdue(self, job: Job, passed: Deadline) -> None:
        juid, state = job["juid"], State(job["state"])
        log.warning("%s passed the deadline of %s", juid, state)
        if state == State.CLEANUP:
            finish(self.jobs, job, "Its results could not be brought back in time.")
        elif state == State.PAUSED:
            # Its processes are there and stopped: they are ended like those of any cancelled job.
            self.jobs.change(juid, None, passed.reason, cancel_requested=True)
            self._cancel_on_host(juid)
        else:
            self.jobs.change(juid, passed.then, passed.reason, phase=None, cancel_requested=True)
            self._cancel_on_host(juid)

    def _look_at_new_hosts(self) -> None:
        for name in self.board.unknown():
            if name not in self._checking:
                self._checking.add(name)
                self.spawn(self._check(name))

    async def _check(self, provider: str) -> None:
        try:
            await self.board.check(self.book.get(provider))
        finally:
            self._checking.discard(provider)

    def _changed(self, job: Job) -> None:
        self.logs.wake(job["juid"])
        if self.jobs.is_over(job):
            self.collector.ended(job)
        self.wake()

    # What the API asks

    def status(self) -> dict[str, Any]:
        """``core status``."""
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_s": round(time.monotonic() - self._started_at, 1),
            "home": str(self.home.root),
            "jobs": self.jobs.counts(),
        }

    def submit(self, submission: Submission, key: str | None) -> Job:
        """Record a job; when this returns it is never lost.

        Raises:
            UsageProblem: it cannot be run as it is; nothing is recorded.
        """
        submit.provider_for(submission, self.book)
        fields = submit.fields_of(submission, self.fs)
        submit.check_fits(_asked(fields), self.board.views())
        return self.jobs.view(self.jobs.add(fields, key))

    async def plan(self, body: PlanBody) -> dict[str, Any]:
        """What would happen to a submission now; nothing is changed. Hosts that are new are looked at first."""
        provider = submit.provider_for(body, self.book)
        self._look_at_new_hosts()
        until = time.monotonic() + _LOOKED_AT_WITHIN_S
        while provider.name in self._checking and time.monotonic() < until:
            await asyncio.sleep(0.1)
        need = _asked({**body.model_dump(), "juid": "", "resources": body.resources.model_dump()})
        views = self.board.views()
        submit.check_fits(need, views)
        waves, waiting = decide([need], views)
        host = next(iter(waves[0].hosts)) if waves else None
        live = self.board.get(provider.name, host) if host else None
        there: set[str] = set()
        for tree in live.trees if live else ():
            if self.fs.has_tree(tree):
                there.update(trees.blobs_of(self.fs.get_tree(tree)))
        lacking = [size for sha, size in body.blobs.items() if sha not in there]
        return {
            "provider": provider.name,
            "host": host,
            "playbook": f"monkey.runner.{provider.playbook}",
            "send": {"files": len(lacking), "bytes": sum(lacking)},
            "reason": waiting[0].message if waiting else f"goes to host {host}",
        }

    def rerun(self, juid: str) -> Job:
        """The same job again, from what the record and monkeyfs hold."""
        submission = submit.submission_of(self.jobs.get(juid))
        submit.provider_for(submission, self.book)
        fields = {**submit.fields_of(submission, self.fs), "rerun_of": juid}
        return self.jobs.view(self.jobs.add(fields, None))

    async def cancel(self, juid: str) -> Job:
        """Cancel in whatever state; of one that is over nothing changes."""
        job = self.jobs.get(juid)
        state = State(job["state"])
        if self.jobs.is_over(job) or state == State.CLEANUP:
            return self.jobs.view(job)
        if state == State.QUEUED:
            return self.jobs.view(
                self.jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, cancel_requested=True)
            )
        host = self.board.of(job)
        if state == State.DISPATCHING and not self.dispatcher.is_launching(juid) and not (host and host.installed):
            # It waits for a host that never had a client of ours: nothing of it can be there.
            gone = self.jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, phase=None, cancel_requested=True)
            return self.jobs.view(gone)
        self.jobs.change(juid, cancel_requested=True)
        self.dispatcher.abandon(juid)
        self._cancel_on_host(juid)
        self.wake()
        return self.jobs.view(self.jobs.get(juid))

    def _cancel_on_host(self, juid: str) -> None:
        self.spawn(self._ask_cancel(juid))

    async def _ask_cancel(self, juid: str) -> None:
        # Where the host does not answer now, it is asked again at its next hello (Follower.on_hello).
        with contextlib.suppress(NotConnected, UsageProblem):
            await self._ask(juid, "cancel")

    async def pause(self, juid: str) -> Job:
        """Hold a queued job back, or stop a running one where it stands."""
        job = self.jobs.get(juid)
        state = State(job["state"])
        if state == State.QUEUED:
            job = self.jobs.change(juid, None, Reason.PAUSED_BY_USER, held=True)
        elif state == State.RUNNING:
            await self._ask_or_say(juid, "pause")
            job = await self._until(juid, State.PAUSED)
        elif state != State.PAUSED:
            raise UsageProblem("job", f"{juid} is {state}; only a job that is queued or runs can be paused")
        return self.jobs.view(job)

    async def resume(self, juid: str) -> Job:
        """Let a paused job go on."""
        job = self.jobs.get(juid)
        state = State(job["state"])
        if state == State.QUEUED and job["held"]:
            job = self.jobs.change(juid, None, Reason.SUBMITTED, held=False)
        elif state == State.PAUSED:
            await self._ask_or_say(juid, "resume")
            job = await self._until(juid, State.RUNNING)
        else:
            raise UsageProblem("job", f"{juid} is {state}, not paused; only a paused job can be resumed")
        return self.jobs.view(job)

    async def collect_now(self, juid: str) -> list[dict[str, Any]]:
        """Persisted folders as they are now; those fetched last where there is nothing newer."""
        return await self.collector.now(juid)

    async def _until(self, juid: str, state: State) -> Job:
        job = self.jobs.get(juid)
        for _ in range(10):
            if job["state"] == state or self.jobs.is_over(job):
                break
            await self.jobs.wait(juid, job["revision"], 1.0)
            job = self.jobs.get(juid)
        return job

    async def _ask_or_say(self, juid: str, op: str) -> None:
        try:
            await self._ask(juid, op)
        except NotConnected as error:
            job = self.jobs.get(juid)
            host = self.board.of(job)
            why = host.message if host else "it was removed"
            raise UsageProblem("job", f"host {job['host']} does not answer now, nothing was changed: {why}") from error

    async def _ask(self, juid: str, op: str) -> None:
        job = self.jobs.get(juid)
        host = self.board.of(job)
        if host is None or host.stream is None:
            raise NotConnected(host_key(job))
        reply = await host.stream.request(op, juid, job["attempt"])
        if not reply.get("ok"):
            raise UsageProblem("job", str(reply.get("error")))

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
        live = [job["juid"] for job in self.jobs.in_states(*LIVE) if job["provider"] == name]
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


def _asked(fields: dict[str, Any]) -> Any:
    return submit.need_of({**fields, "juid": fields.get("juid", "")}, "", 0.0)
