"""Policies: which of the hosts that could take a job gets it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monkey.errors import UsageProblem
from monkey.names import did_you_mean
from monkey.scheduler.needs import HostView, Need

Choose = Callable[[Need, Sequence[HostView]], HostView]


@dataclass(frozen=True)
class Policy:
    """A way to choose hosts.

    Attributes:
        name: what users write.
        description: one line for people.
        choose: takes a need and the hosts that could take it now (at least one, in inventory order); returns one.
        because: why it is that host, in words that follow the host's name; ``{n}`` is the number there were.
        strict: nothing passes the first job of a provider that cannot go.
    """

    name: str
    description: str
    choose: Choose
    because: str
    strict: bool = False


def _most_free(need: Need, hosts: Sequence[HostView]) -> HostView:
    def free(host: HostView) -> tuple[float, ...]:
        gpus = host.free_gpus if need.gpus else 0
        return (gpus, host.free_cpus, host.free_memory_mb, -host.running)

    return max(hosts, key=free)  # The first in inventory order among equals, as with min below.


def _least_free(_need: Need, hosts: Sequence[HostView]) -> HostView:
    # Free GPUs count first for every job: one that asks for none leaves them to those that do.
    return min(hosts, key=lambda h: (h.free_gpus, h.free_cpus, h.free_memory_mb, -h.running))


def _first(_need: Need, hosts: Sequence[HostView]) -> HostView:
    return hosts[0]


def _drawn(need: Need, hosts: Sequence[HostView]) -> HostView:
    # From the job's own id: the same queue gives the same answer again.
    return random.Random(need.juid).choice(hosts)


DEFAULT_POLICY = "smart"

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "smart",
            "the host with the most free GPUs (for jobs that ask for some), CPUs and memory",
            _most_free,
            "has the most free of the {n} hosts that could take it now",
        ),
        Policy(
            "frugal",
            "the host with the least free that still fits, so that large jobs find whole machines",
            _least_free,
            "has the least free of the {n} hosts that could take it now",
        ),
        Policy(
            "sequential",
            "the first host that fits, in the order of the inventory",
            _first,
            "is the first of the {n} hosts that could take it now",
        ),
        Policy(
            "random",
            "any host that fits, drawn from the job's own id",
            _drawn,
            "was drawn from the {n} hosts that could take it now",
        ),
        Policy(
            "fifo",
            "strict order: while the first job of a provider cannot go, none behind it goes; hosts as with smart",
            _most_free,
            "has the most free of the {n} hosts that could take it now",
            strict=True,
        ),
    )
}
"""Every policy there is, by name."""


def policy_named(name: str) -> Policy:
    """The policy of a name.

    Raises:
        UsageProblem: there is none; it names those there are and the nearest.
    """
    found = POLICIES.get(name)
    if found is None:
        known = ", ".join(POLICIES)
        raise UsageProblem("policy", f"unknown policy {name[:80]!r}{did_you_mean(name, POLICIES)}; there are {known}")
    return found
