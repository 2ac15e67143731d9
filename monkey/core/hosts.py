"""Hosts as the core knows them: what they have, whether they answer, what is going on there."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from monkey.core.live import LiveJobs, host_key
from monkey.core.livehost import Drained, LiveHost
from monkey.engine import Engine, HostResult
from monkey.events import HostStream, Listener
from monkey.jobs import Job
from monkey.providers import Provider, ProviderBook, classify_unreachable, stream_argv
from monkey.providers.hosts import HostEntry
from monkey.scheduler import HostView
from monkey.store import BaseStore
from monkey.version import __version__

log = logging.getLogger("monkey.hosts")

# Python's words for a program that is not there: the client's folder was removed, or the machine was made anew.
_CLIENT_GONE = re.compile(r"can't open file '[^']*monkey-client\.pyz'.*No such file or directory")

class HostBoard:
    """All hosts of all providers.

    Args:
        book: the providers.
        store: keeps facts across restarts.
        live: says what is on each host.
        engine: runs the checks.
        core_id: this main node's id.
        wake: called when the scheduler should look again.
    """

    def __init__(
        self,
        book: ProviderBook,
        store: BaseStore,
        live: LiveJobs,
        engine: Engine,
        core_id: str,
        wake: Callable[[], None],
    ) -> None:
        self.book = book
        self._store = store
        self._live = live
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
            host.drained = Drained(**recorded["drained"]) if recorded.get("drained") else None
            host.extra_s = float(recorded.get("extra_s", 0.0))

    def all(self, provider: str | None = None) -> list[LiveHost]:
        """Hosts in the order of the providers."""
        return [host for host in self._hosts.values() if provider in (None, host.provider)]

    def get(self, provider: str, name: str) -> LiveHost | None:
        """A host, or None when it was removed."""
        return self._hosts.get(f"{provider}/{name}")

    def by_key(self, key: str) -> LiveHost | None:
        """The host of a key (``provider/name``), or None when it was removed."""
        return self._hosts.get(key)

    def of(self, job: Job) -> LiveHost | None:
        """The host that a job is on, or None when there is none, or it was removed."""
        return self._hosts.get(host_key(job))

    def record(self, host: LiveHost, **changes: Any) -> None:
        """Keep what is known of a host."""
        for name, value in changes.items():
            setattr(host, name, value)
        doc = {
            "facts": host.facts,
            "installed": host.installed,
            "trees": sorted(host.trees)[-1000:],
            "drained": asdict(host.drained) if host.drained else None,
            "extra_s": host.extra_s,
        }
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
        views = []
        for host in self._hosts.values():
            facts, use = host.facts or {}, self._live.use(host.key)
            views.append(
                HostView(
                    provider=host.provider,
                    name=host.entry.name,
                    cpus=facts.get("cpus"),
                    gpus=len(facts["gpus"]) if "gpus" in facts else None,
                    memory_mb=facts.get("memory_mb"),
                    max_jobs=host.entry.slots,
                    used_cpus=use.cpus,
                    used_gpus=use.gpus,
                    used_memory_mb=use.memory_mb,
                    running=use.jobs,
                    ready=host.ready,
                    why_not=host.why_not,
                    launching=frozenset(host.launching),
                )
            )
        return views

    def failed(self, host: LiveHost, message: str) -> None:
        """A host did not answer; whether it is drained now is kept."""
        drained = host.drained
        host.failed(message)
        if host.drained is not drained and host.drained:
            log.warning("%s is drained: %s", host.key, host.drained.why)
        self.record(host)

    def drain(self, host: LiveHost, why: str) -> None:
        """Give a host no more jobs until it is resumed; those that are there go on."""
        self.record(host, drained=Drained("user", why or "by the user"))
        self._wake()

    def resume(self, host: LiveHost) -> None:
        """Let a drained host have jobs again."""
        host.resume()
        self.record(host)
        self._wake()

    def resume_steady(self) -> None:
        """Let hosts have jobs again that Monkey drained and that have answered for long enough."""
        clock = asyncio.get_running_loop().time()
        for host in self._hosts.values():
            steady_at = host.steady_at()
            if steady_at is not None and steady_at <= clock:
                log.info("%s answers again: no longer drained", host.key)
                self.resume(host)

    def next_due(self) -> float | None:
        """The event loop's time at which a host has to be looked at again."""
        due = [host.retry_at for host in self._hosts.values() if self._to_probe(host)]
        due += [at for at in (host.steady_at() for host in self._hosts.values()) if at is not None]
        return min(due, default=None)

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

    def to_probe(self) -> dict[str, list[LiveHost]]:
        """Hosts by provider to look at now: never seen, or not answering without a connection that tries by itself."""
        clock = asyncio.get_running_loop().time()
        found: dict[str, list[LiveHost]] = {}
        for host in self._hosts.values():
            if self._to_probe(host) and host.retry_at <= clock:
                found.setdefault(host.provider, []).append(host)
        return found

    @staticmethod
    def _to_probe(host: LiveHost) -> bool:
        return (host.facts is None or bool(host.message)) and (not host.installed or host.stream is None)

    async def check(self, provider: Provider, only: list[LiveHost] | None = None) -> dict[str, HostResult]:
        """Look at hosts of a provider (all, or only these) with playbook ``check_hosts`` and keep what it says."""
        names = {host.entry.name for host in only} if only is not None else None
        entries = [entry for entry in provider.hosts() if names is None or entry.name in names]
        if not entries:
            return {}
        inventory = provider.write_inventory()
        result = await asyncio.to_thread(
            self._engine.run,
            "check_hosts",
            inventory,
            limit=None if names is None else sorted(names),
            variables={"check_hosts_install": False},
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
                self.failed(host, classify_unreachable(os.strerror(errno.ENOSPC), entry))
            elif facts:
                host.answered()
                self.record(host, facts=facts)
            else:
                self.failed(host, why_failed(outcome, entry))
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
