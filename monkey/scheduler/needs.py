"""What the scheduler reads and says: what jobs ask for, what hosts have, where jobs go, why they wait."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# CPUs are fractions: 0.1 + 0.2 must fit into 0.3.
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
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
        group: its queue: jobs of one group share ``max_parallel``; None: it is in none.
        max_parallel: it starts only while fewer jobs than that of its group are out; None: no limit.
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
    group: str | None = None
    max_parallel: int | None = None

    def __post_init__(self) -> None:
        # 100,000 jobs of one sweep hold each of these texts once; a shape may be a whole requirements file.
        for name in ("provider", "instance", "shape", "group"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, sys.intern(text))

    def asks(self) -> str:
        """What it asks for, in words: ``2 CPU, 1 GPU, 4000 MB``."""
        return amounts(self.cpus, self.gpus, self.memory_mb or 0)


@dataclass(frozen=True)
class HostView:
    """A host as the scheduler sees it.

    Attributes:
        provider: its provider.
        name: its inventory name.
        cpus, gpus, memory_mb: what the machine has; None: not known yet.
        max_jobs: most jobs at once, or None.
        used_cpus, used_gpus, used_memory_mb, running: what live attempts hold.
        ready: False while it is unreachable, drained, being looked at, or being reattached to.
        why_not: words for a host that is not ready, such as ``connection refused``.
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

    @property
    def free_cpus(self) -> float:
        """CPUs that nobody holds; 0 while the machine is not known."""
        return max((self.cpus or 0.0) - self.used_cpus, 0.0)

    @property
    def free_gpus(self) -> int:
        """GPUs that nobody holds."""
        return max((self.gpus or 0) - self.used_gpus, 0)

    @property
    def free_memory_mb(self) -> int:
        """Memory in megabytes that nobody claims."""
        return max((self.memory_mb or 0) - self.used_memory_mb, 0)

    def could_ever(self, need: Need) -> bool:
        """Whether the empty machine meets the need; True where the machine is not known yet."""
        return (
            (self.cpus is None or need.cpus <= self.cpus + _TINY)
            and (self.gpus is None or need.gpus <= self.gpus)
            and (self.memory_mb is None or need.memory_mb is None or need.memory_mb <= self.memory_mb)
        )

    def has_room(self, need: Need) -> bool:
        """Whether what nobody holds is enough for the need, ready or not."""
        return (
            self.cpus is not None
            and (self.max_jobs is None or self.running < self.max_jobs)
            and self.used_cpus + need.cpus <= self.cpus + _TINY
            and self.used_gpus + need.gpus <= (self.gpus or 0)
            and (self.memory_mb is None or self.used_memory_mb + (need.memory_mb or 0) <= self.memory_mb)
        )

    def fits(self, need: Need) -> bool:
        """Whether it can take the need now."""
        return self.ready and need.shape not in self.launching and self.has_room(need)

    def holding(self, cpus: float, gpus: int, memory_mb: int) -> HostView:
        """The host with one more job on it that holds this much."""
        return replace(
            self,
            used_cpus=self.used_cpus + cpus,
            used_gpus=self.used_gpus + gpus,
            used_memory_mb=self.used_memory_mb + memory_mb,
            running=self.running + 1,
        )

    def why_not_now(self, need: Need) -> str:
        """Why it cannot take the need now, in words that follow its name; "" when it can."""
        if not self.could_ever(need):
            return f"too small: it has {amounts(self.cpus or 0.0, self.gpus or 0, self.memory_mb or 0)}"
        if not self.ready:
            return self.why_not or "not ready yet"
        if need.shape in self.launching:
            return "a launch of the same environment is under way there"
        if self.max_jobs is not None and self.running >= self.max_jobs:
            return f"{self.running} of at most {self.max_jobs} jobs are there"
        return "" if self.has_room(need) else f"not enough free: {self.free()}"

    def free(self) -> str:
        """What nobody holds, in words."""
        return amounts(self.free_cpus, self.free_gpus, self.free_memory_mb)


@dataclass
class Wave:
    """Jobs that go out in one playbook run: one provider, one shape, jobs by host."""

    provider: str
    shape: str
    hosts: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a queued job stays queued: a reason code and a sentence."""

    juid: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Why a job went where it went; ``dataclasses.asdict`` of it is what an attempt's record keeps.

    Attributes:
        host: where it goes.
        policy: name of the policy that chose.
        why: sentence: why this host.
        others: hosts that were considered too, with why they were not taken; at most 10.
        behind: the first job of its provider that is ahead in the queue and waits still; None: it was next.
    """

    host: str
    policy: str
    why: str
    others: list[tuple[str, str]] = field(default_factory=list)
    behind: Waiting | None = None


def amounts(cpus: float, gpus: int, memory_mb: int) -> str:
    """An amount of a machine in words; GPUs and memory only when there are any."""
    parts = [f"{cpus:g} CPU"]
    if gpus:
        parts.append(f"{gpus} GPU")
    if memory_mb:
        parts.append(f"{memory_mb} MB")
    return ", ".join(parts)


def shape_of(environment: Mapping[str, Any], install: Iterable[str]) -> str:
    """Key of the jobs that may share a wave: same environment and same installs."""
    return json.dumps([dict(environment), list(install)], sort_keys=True)
