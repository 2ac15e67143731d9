"""One host as the core knows it now: whether it answers, whether it is drained, what is going on there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from monkey.events import HostStream
from monkey.providers.hosts import HostEntry

_RETRY_FIRST_S = 5.0
_RETRY_LONGEST_S = 120.0
# A machine that reboots fails a few probes within a minute; one that goes on failing after that is not to be trusted.
DRAIN_AFTER_FAILURES = 5
DRAIN_AFTER_S = 60.0
# So often may it come and go within half an hour.
DRAIN_AFTER_OUTAGES = 4
OUTAGES_WITHIN_S = 1800.0
# A host that Monkey drained gets jobs again when it has answered for so long.
STEADY_S = 120.0


@dataclass
class Drained:
    """Why a host gets no jobs: `by` is `user` or `monkey`; what the user drained, the user resumes."""

    by: str
    why: str


@dataclass
class LiveHost:
    """A host of a provider, now. Times are the event loop's.

    Attributes:
        key: ``provider/name``.
        facts: ``cpus memory_mb gpus disk_free_mb hostname python`` once looked at, else None.
        installed: the client was installed there, so that it must be reattached to before anything else.
        attempts: attempts that the client listed when the connection was made; None while it does not stand.
        launching: shapes whose launch is under way.
        message: why it does not answer, or "".
        retry_at: time before which it is left alone.
        trees: trees that it is known to have.
        heard_at: when it last said something.
        failures: failed tries to reach it since it last answered.
        drained: why it gets no jobs, or None.
        extra_s: what an earlier core added to the leases there before it stopped.
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
    failures: int = 0
    failing_since: float = 0.0
    answering_since: float | None = None
    outages: list[float] = field(default_factory=list)
    drained: Drained | None = None
    extra_s: float = 0.0

    @property
    def connected(self) -> bool:
        """Whether its events come in."""
        return self.attempts is not None

    @property
    def ready(self) -> bool:
        """Whether it may get jobs."""
        known = self.facts is not None and not self.message
        return known and self.drained is None and (self.connected or not self.installed)

    @property
    def why_not(self) -> str:
        """Why it may not."""
        if self.drained:
            return f"drained: {self.drained.why}"
        return "" if self.ready else (self.message or "it is being looked at")

    @property
    def state(self) -> str:
        """One word for people: ready, drained, connecting, unknown or unreachable."""
        if self.drained:
            return "drained"
        if self.message:
            return "unreachable"
        if self.installed:
            return "ready" if self.connected else "connecting"
        return "ready" if self.facts else "unknown"

    def failed(self, message: str) -> None:
        """It did not answer: leave it alone for a while, longer each time; drained when there is no end to it."""
        clock = asyncio.get_running_loop().time()
        if self.answering_since is not None:
            self.outages = [at for at in self.outages if clock - at < OUTAGES_WITHIN_S] + [clock]
        if not self.failures:
            self.failing_since = clock
        self.answering_since = None
        self.failures += 1
        self.message = message
        self.retry_at = clock + self.pause_s
        self.pause_s = min(self.pause_s * 2, _RETRY_LONGEST_S)
        if self.drained:
            return
        if self.failures >= DRAIN_AFTER_FAILURES and clock - self.failing_since >= DRAIN_AFTER_S:
            self.drained = Drained("monkey", f"it failed {self.failures} times in a row, the last time: {message}")
        elif len(self.outages) >= DRAIN_AFTER_OUTAGES:
            within_min = OUTAGES_WITHIN_S / 60
            self.drained = Drained("monkey", f"it came and went {len(self.outages)} times in {within_min:g} min")

    def answered(self) -> None:
        """It answered."""
        if self.answering_since is None:
            self.answering_since = asyncio.get_running_loop().time()
        self.message, self.retry_at, self.pause_s, self.failures = "", 0.0, _RETRY_FIRST_S, 0

    def steady_at(self) -> float | None:
        """When it gets jobs again, should it go on answering; None when that is not the question."""
        if self.drained is None or self.drained.by != "monkey" or self.answering_since is None:
            return None
        return self.answering_since + STEADY_S

    def resume(self) -> None:
        """It may get jobs again."""
        self.drained, self.outages, self.failures = None, [], 0
