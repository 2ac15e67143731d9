"""Hosts as the core knows them: what they have, whether they answer, what is going on there."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from monkey.engine import Engine, HostResult
from monkey.events import HostStream, Listener
from monkey.jobs import Job, JobBook
from monkey.providers import Provider, ProviderBook, classify_unreachable, stream_argv
from monkey.providers.hosts import HostEntry
from monkey.scheduler import HostView
from monkey.states import State
from monkey.store import BaseStore
from monkey.version import __version__

log = logging.getLogger("monkey.hosts")

_RETRY_FIRST_S = 5.0
_RETRY_LONGEST_S = 120.0
# Python's words for a program that is not there: the client's folder was removed, or the machine was made anew.
_CLIENT_GONE = re.compile(r"can't open file '[^']*monkey-client\.pyz'.*No such file or directory")
HOLDING = (State.DISPATCHING, State.RUNNING, State.PAUSED)


def host_key(job: Job) -> str:
    """Key of the host that a job is on, or was sent to last."""
    return f"{job['provider']}/{job['host']}"


@dataclass
class LiveHost:
    """A host of a provider, now.

    Attributes:
        key: ``provider/name``.
        facts: ``cpus memory_mb gpus disk_free_mb hostname python`` once looked at, else None.
        installed: the client was installed there, so that it must be reattached to before anything else.
        attempts: attempts that the client listed when the connection was made; None while it does not stand.
        launching: shapes whose launch is under way.
        message: why it does not answer, or "".
        retry_at: event loop's time before which it is left alone.
        trees: trees that it is known to have.
        heard_at: when it last said something, in seconds since the epoch.
    """

    key: str
    provider: str
    entry: HostEntry
    facts: dict[str, Any] | None = None
    installed: bool = False
    stream: HostStream | None = None
    attempts: dict[str, str] | None = None
    machine: dict[str, Any] | None = None
    launching: set[str] = field(default_factory=set)
    collecting: bool = False
    message: str = ""
    retry_at: float = 0.0
    pause_s: float = _RETRY_FIRST_S
    trees: set[str] = field(default_factory=set)
    heard_at: float = 0.0

    @property
    def connected(self) -> bool:
        """Whether its events come in."""
        return self.attempts is not None

    @property
    def state(self) -> str:
        """One word for people: ready, connecting, unknown or unreachable."""
        if self.message:
            return "unreachable"
        if self.installed:
            return "ready" if self.connected else "connecting"
        return "ready" if self.facts else "unknown"

    def failed(self, message: str) -> None:
        """It did not answer: leave it alone for a while, longer each time."""
        self.message = message
        self.retry_at = asyncio.get_running_loop().time() + self.pause_s
        self.pause_s = min(self.pause_s * 2, _RETRY_LONGEST_S)

    def answered(self) -> None:
        """It answered."""
        self.message, self.retry_at, self.pause_s = "", 0.0, _RETRY_FIRST_S


class HostBoard:
    """All hosts of all providers.

    Args:
        book: the providers.
        store: keeps facts across restarts.
        jobs: says what is on each host.
        engine: runs the checks.
        core_id: this main node's id.
        wake: called when the scheduler should look again.
    """

    def __init__(
        self,
        book: ProviderBook,
        store: BaseStore,
        jobs: JobBook,
        engine: Engine,
        core_id: str,
        wake: Callable[[], None],
    ) -> None:
        self.book = book
        self._store = store
        self._jobs = jobs
        self._engine = engine
        self._core_id = core_id
        self._wake = wake
        self._hosts: dict[str, LiveHost] = {}
        self.listener: Listener | None = None

    def load(self) -> None:
        """Take hosts from the providers, with what is on record about them."""
        wanted: dict[str, HostEntry] = {}
        for provider in self.book.all():
            for entry in provider.hosts():
                wanted[f"{provider.name}/{entry.name}"] = entry
        for key in self._hosts.keys() - wanted.keys():
            del self._hosts[key]
        for key, entry in wanted.items():
            host = self._hosts.setdefault(key, LiveHost(key, key.partition("/")[0], entry))
            host.entry = entry
            recorded = self._store.get("hosts", key) or {}
            host.facts = recorded.get("facts")
            host.installed = bool(recorded.get("installed"))
            host.trees = set(recorded.get("trees", []))

    def all(self, provider: str | None = None) -> list[LiveHost]:
        """Hosts in the order of the providers."""
        return [host for host in self._hosts.values() if provider in (None, host.provider)]

    def get(self, provider: str, name: str) -> LiveHost | None:
        """A host, or None when it was removed."""
        return self._hosts.get(f"{provider}/{name}")

    def of(self, job: Job) -> LiveHost | None:
        """The host that a job is on, or None when there is none, or it was removed."""
        return self._hosts.get(host_key(job))

    def record(self, host: LiveHost, **changes: Any) -> None:
        """Keep what is known of a host."""
        for name, value in changes.items():
            setattr(host, name, value)
        doc = {"facts": host.facts, "installed": host.installed, "trees": sorted(host.trees)[-1000:]}
        if doc != self._store.get("hosts", host.key):
            self._store.put("hosts", host.key, doc)

    def forget(self, provider: str) -> None:
        """Drop what is on record about a provider's hosts."""
        for key, _ in self._store.items("hosts"):
            if key.partition("/")[0] == provider:
                self._store.delete("hosts", key)
        self.load()

    def views(self) -> list[HostView]:
        """Hosts as the scheduler sees them."""
        views: dict[str, HostView] = {}
        loop_time = asyncio.get_running_loop().time()
        for host in self._hosts.values():
            facts = host.facts or {}
            ready = host.retry_at <= loop_time and host.facts is not None and (host.connected or not host.installed)
            views[host.key] = HostView(
                provider=host.provider,
                name=host.entry.name,
                cpus=facts.get("cpus"),
                gpus=len(facts["gpus"]) if "gpus" in facts else None,
                memory_mb=facts.get("memory_mb"),
                max_jobs=host.entry.slots,
                ready=ready,
                why_not="" if ready else (host.message or "it is being looked at"),
                launching=frozenset(host.launching),
            )
        for job in self._jobs.in_states(*HOLDING):
            key, resources = host_key(job), job["resources"]
            if key in views:
                view = views[key]
                views[key] = view.holding(resources["cpus"], resources["gpus"], resources["memory_mb"] or 0)
        return list(views.values())

    def connect(self, host: LiveHost) -> None:
        """Keep a connection to a host that has the client."""
        if host.stream is None and self.listener is not None:
            provider = self.book.get(host.provider)
            host.stream = HostStream(
                host.key,
                stream_argv(provider, host.entry),
                core_id=self._core_id,
                version=__version__,
                listener=self.listener,
                explain=lambda words: self.explain(host, words),
            )
            host.stream.start()
        elif host.stream is not None:
            host.stream.retry_now()

    def explain(self, host: LiveHost, words: str) -> str:
        """What the last words of a host's connection mean; a client that is gone is brought again by the next wave."""
        if _CLIENT_GONE.search(words):
            self.record(host, installed=False, trees=set())
            return f"{host.entry} has no client any more: it comes with the next job"
        return classify_unreachable(words, host.entry)

    def connect_all(self) -> None:
        """Reattach to every host that has the client."""
        for host in self._hosts.values():
            if host.installed:
                self.connect(host)

    async def disconnect(self, hosts: list[LiveHost]) -> None:
        """End connections; no job ends by it."""
        streams = [host.stream for host in hosts if host.stream]
        for host in hosts:
            host.stream, host.attempts = None, None
        await asyncio.gather(*(stream.stop() for stream in streams))

    def unknown(self) -> dict[str, list[LiveHost]]:
        """Hosts by provider that were never looked at and may be now."""
        loop_time = asyncio.get_running_loop().time()
        found: dict[str, list[LiveHost]] = {}
        for host in self._hosts.values():
            if host.facts is None and host.retry_at <= loop_time:
                found.setdefault(host.provider, []).append(host)
        return found

    async def check(self, provider: Provider) -> dict[str, HostResult]:
        """Look at every host of a provider with playbook ``check_hosts`` and keep what it says."""
        entries = provider.hosts()
        if not entries:
            return {}
        inventory = provider.write_inventory()
        result = await asyncio.to_thread(
            self._engine.run, "check_hosts", inventory, variables={"check_hosts_install": False}
        )
        outcomes = {entry.name: result.host(entry.name) for entry in entries}
        for entry in entries:
            outcome = outcomes[entry.name]
            host = self.get(provider.name, entry.name)
            if host is None:
                continue
            facts = facts_in(outcome)
            if facts and facts.get("disk_free_mb") == 0:
                # Not a megabyte: neither client nor code would fit.
                host.failed(classify_unreachable(os.strerror(errno.ENOSPC), entry))
            elif facts:
                host.answered()
                self.record(host, facts=facts)
            else:
                host.failed(why_failed(outcome, entry))
        self._wake()
        return outcomes


def facts_in(outcome: HostResult) -> dict[str, Any] | None:
    """What module ``client`` found out about a host, from whichever task called it."""
    for result in outcome.results.values():
        if isinstance(result.get("facts"), dict):
            return {**result["facts"], "python": result.get("python")}
    return None


def why_failed(outcome: HostResult, entry: HostEntry) -> str:
    """One sentence for a host that did not answer as it should."""
    if outcome.unreachable is not None:
        return classify_unreachable(outcome.unreachable, entry)
    failed = outcome.failed or {}
    if "module_stderr" in failed or "module_stdout" in failed:
        # The module did not run at all: no Python, a full disk, a host without a shell.
        return classify_unreachable(f"{failed.get('module_stdout', '')}\n{failed.get('module_stderr', '')}", entry)
    return " ".join(str(failed.get("msg") or "the playbook failed without a word").split())
