"""The scheduler's decisions, as pure functions of jobs, hosts and time. Input and output live in ``monkey.core``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Need:
    """What a queued job asks for.

    Attributes:
        juid: the job.
        provider: provider it is to run on.
        instance: host it is to run on, or None for any of the provider.
        cpus: CPUs, may be a fraction.
        gpus: whole GPUs.
        memory_mb: memory in megabytes, or None for no claim.
        priority: higher goes first.
        queued_at: seconds since the epoch; older goes first among equals.
        shape: jobs of one shape may share a wave (same environment and installs).
    """

    juid: str
    provider: str
    instance: str | None = None
    cpus: float = 1.0
    gpus: int = 0
    memory_mb: int | None = None
    priority: int = 0
    queued_at: float = 0.0
    shape: str = ""


@dataclass(frozen=True)
class HostView:
    """A host as the scheduler sees it.

    Attributes:
        provider: its provider.
        name: its inventory name.
        cpus, gpus, memory_mb: what the machine has; None: not known yet.
        max_jobs: most jobs at once, or None.
        used_cpus, used_gpus, used_memory_mb, running: what live attempts hold.
        ready: False while it is unreachable, being looked at, or being reattached to.
        why_not: sentence for a host that is not ready.
        launching: shapes whose launch is under way there; further jobs of them wait for the next wave.
    """

    provider: str
    name: str
    cpus: float | None = None
    gpus: int | None = None
    memory_mb: int | None = None
    max_jobs: int | None = None
    used_cpus: float = 0.0
    used_gpus: int = 0
    used_memory_mb: int = 0
    running: int = 0
    ready: bool = True
    why_not: str = ""
    launching: frozenset[str] = frozenset()

    def could_ever(self, need: Need) -> bool:
        """Whether the empty machine meets the need; True where the machine is not known yet."""
        return (
            (self.cpus is None or need.cpus <= self.cpus)
            and (self.gpus is None or need.gpus <= self.gpus)
            and (self.memory_mb is None or need.memory_mb is None or need.memory_mb <= self.memory_mb)
        )

    def fits(self, need: Need) -> bool:
        """Whether it can take the need now."""
        if not self.ready or self.cpus is None or need.shape in self.launching:
            return False
        if self.max_jobs is not None and self.running >= self.max_jobs:
            return False
        return (
            self.used_cpus + need.cpus <= self.cpus + 1e-9
            and self.used_gpus + need.gpus <= (self.gpus or 0)
            and (self.memory_mb is None or self.used_memory_mb + (need.memory_mb or 0) <= self.memory_mb)
        )

    def holding(self, cpus: float, gpus: int, memory_mb: int) -> HostView:
        """The host with one more job on it that holds this much."""
        return replace(
            self,
            used_cpus=self.used_cpus + cpus,
            used_gpus=self.used_gpus + gpus,
            used_memory_mb=self.used_memory_mb + memory_mb,
            running=self.running + 1,
        )


@dataclass
class Wave:
    """Jobs that go out in one playbook run: one provider, one shape, jobs by host."""

    provider: str
    shape: str
    hosts: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """Why a queued job stays queued: a reason code and a sentence."""

    juid: str
    reason: str
    message: str


def order(needs: Iterable[Need]) -> list[Need]:
    """Queue order: priority, then age, then JUID."""
    return sorted(needs, key=lambda n: (-n.priority, n.queued_at, n.juid))


def decide(needs: Iterable[Need], hosts: Iterable[HostView]) -> tuple[list[Wave], list[Waiting]]:
    """Which queued jobs go where now, and why the others wait.

    The policy is the first host that fits, in the order of ``hosts``, the emptiest first: jobs spread over machines.
    A job that does not fit now does not hold up smaller ones behind it on other hosts, but nothing passes it on a host
    that it could use: otherwise a large job would starve.

    Args:
        needs: queued jobs.
        hosts: hosts of all providers.

    Returns:
        (waves, waiting): each job is in exactly one of them.
    """
    views: dict[tuple[str, str], HostView] = {(h.provider, h.name): h for h in hosts}
    held: set[tuple[str, str]] = set()
    waves: dict[tuple[str, str], Wave] = {}
    waiting: list[Waiting] = []
    for need in order(needs):
        candidates = [
            h
            for h in views.values()
            if h.provider == need.provider and (need.instance is None or h.name == need.instance) and h.could_ever(need)
        ]
        free = [h for h in candidates if h.fits(need) and (h.provider, h.name) not in held]
        if not free:
            waiting.append(_why(need, candidates))
            held.update((h.provider, h.name) for h in candidates)
            continue
        host = min(free, key=lambda h: (_load(h), list(views).index((h.provider, h.name))))
        views[(host.provider, host.name)] = host.holding(need.cpus, need.gpus, need.memory_mb or 0)
        wave = waves.setdefault((need.provider, need.shape), Wave(need.provider, need.shape))
        wave.hosts.setdefault(host.name, []).append(need.juid)
    return list(waves.values()), waiting


def shape_of(environment: Mapping[str, Any], install: Iterable[str]) -> str:
    """Key of the jobs that may share a wave: same environment and same installs."""
    return json.dumps([dict(environment), list(install)], sort_keys=True)


def _load(host: HostView) -> float:
    return (host.used_cpus / host.cpus) if host.cpus else float(host.running)


def _why(need: Need, candidates: list[HostView]) -> Waiting:
    if not candidates:
        what = f"host {need.instance}" if need.instance else "a host"
        return Waiting(need.juid, "WAITING_FOR_HOST", f"waits for {what} of provider {need.provider} that can meet it")
    if not any(h.ready for h in candidates):
        first = next((h for h in candidates if h.why_not), candidates[0])
        why = first.why_not or "not ready yet"
        return Waiting(need.juid, "WAITING_FOR_HOST", f"waits for host {first.name}: {why}")
    asks = f"{need.cpus:g} CPU" + (f", {need.gpus} GPU" if need.gpus else "")
    message = f"waits for a free slot ({asks}) on provider {need.provider}; jobs ahead hold them"
    return Waiting(need.juid, "WAITING_FOR_SLOT", message)
