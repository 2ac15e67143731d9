"""Leases: a host ends an attempt that nobody renewed, and only then another attempt of its job may begin elsewhere.

The host counts a lease from a moment of its own clock that it told the core (`boot_s`), never from the arrival of a
renewal: one that lay in the buffers of a cut line prolongs nothing. The core counts the same lease from when it heard
that moment, which is later. So when the lease is over here, it is over there, whatever clocks say.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from monkey.core.ending import conclude
from monkey.core.hosts import HostBoard
from monkey.core.live import Leased, LiveJobs
from monkey.core.livehost import LiveHost
from monkey.events import NotConnected
from monkey.jobs import JobBook
from monkey.retrying import surely_over_s
from monkey.states import Reason, State

log = logging.getLogger("monkey.leases")

GRACE_S = 10.0
# A core that is stopped on purpose leaves attempts this much longer: no other core starts them anew meanwhile.
STOPPED_EXTRA_S = 24 * 3600.0
_RENEWED_PER_LEASE = 4
_LAST_RENEWAL_WITHIN_S = 3.0


def boot_s() -> float:
    """Seconds that count through a suspend and are never stepped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leases:
    """Renews the leases of attempts on hosts that answer, and gives up those that ended unheard.

    Args:
        board, jobs, live: the parts it works on.
        spawn: runs a coroutine as a task.
        clock: for tests.
    """

    def __init__(
        self,
        board: HostBoard,
        jobs: JobBook,
        live: LiveJobs,
        spawn: Callable[[Any], None],
        clock: Callable[[], float] = boot_s,
    ) -> None:
        self._board = board
        self._jobs = jobs
        self._live = live
        self._spawn = spawn
        self._clock = clock
        # By host: its own `boot_s`, and when it was heard here.
        self._said: dict[str, tuple[float, float]] = {}
        self._renew_at: dict[str, float] = {}
        self._renewing: set[str] = set()
        # By `JUID.n`: when nothing of the attempt can run any more unless it is renewed.
        self._over_at: dict[str, float] = {}
        self._counting: set[str] = set()

    def said(self, host: LiveHost, message: dict[str, Any]) -> None:
        """A host said what its clock shows."""
        if isinstance(message.get("boot_s"), (int, float)):
            self._said[host.key] = (float(message["boot_s"]), self._clock())

    def step(self) -> None:
        """Renew what is due, give up what is over."""
        now = self._clock()
        by_host: dict[str, dict[str, Leased]] = {}
        for juid, leased in self._live.leased.items():
            by_host.setdefault(leased.host, {})[juid] = leased
        for key in self._over_at.keys() - {leased.key for leased in self._live.leased.values()}:
            del self._over_at[key]
            self._counting.discard(key)
        for key, mine in by_host.items():
            host = self._board.by_key(key)
            for leased in mine.values():
                extra_s = host.extra_s if host else 0.0
                if leased.key not in self._counting:
                    # The host counts from when it accepted the attempt: until that is known to have been, it may yet.
                    self._over_at[leased.key] = now + surely_over_s(leased.lease_s + extra_s, GRACE_S)
                    if leased.handed:
                        self._counting.add(leased.key)
            if host is not None and host.connected:
                if self._renew_at.get(key, 0.0) <= now and key in self._said and key not in self._renewing:
                    self._renewing.add(key)
                    self._spawn(self._renew(host, mine))
            else:
                self._give_up(host, mine, now)

    def next_due(self) -> float | None:
        """Seconds from now until there is something to do."""
        now = self._clock()
        due = []
        for leased in self._live.leased.values():
            host = self._board.by_key(leased.host)
            if host is not None and host.connected:
                if leased.host not in self._renewing:
                    due.append(self._renew_at.get(leased.host, now))
            else:
                due.append(self._over_at.get(leased.key, now))
        return max(0.0, min(due) - now) if due else None

    async def before_stop(self) -> None:
        """The core stops on purpose: give attempts the time until the next one comes."""
        for host in self._board.all():
            mine = {juid: leased for juid, leased in self._live.leased.items() if leased.host == host.key}
            if mine and host.connected:
                # On record first: the next core must not think that they are over earlier.
                self._board.record(host, extra_s=STOPPED_EXTRA_S)
                await self._renew(host, mine, STOPPED_EXTRA_S)

    async def _renew(self, host: LiveHost, mine: dict[str, Leased], extra_s: float = 0.0) -> None:
        at, heard_at = self._said[host.key]
        keys = [leased.key for leased in mine.values()]
        until = {
            leased.key: heard_at + surely_over_s(leased.lease_s + extra_s, GRACE_S) for leased in mine.values()
        }
        for key, when in until.items():
            # From here on it may have been renewed, whether or not an answer comes.
            self._over_at[key] = max(self._over_at.get(key, 0.0), when)
        shortest_s = min(leased.lease_s for leased in mine.values())
        self._renew_at[host.key] = self._clock() + shortest_s / _RENEWED_PER_LEASE
        try:
            order = {"op": "renew", "at": at, "attempts": keys, "extra_s": extra_s}
            timeout_s = _LAST_RENEWAL_WITHIN_S if extra_s else shortest_s
            reply = await host.stream.request(order, timeout_s) if host.stream else {}
        except NotConnected:
            return
        finally:
            self._renewing.discard(host.key)
        result = reply.get("result") or {}
        if not reply.get("ok"):
            log.warning("%s did not renew leases: %s", host.key, reply.get("error"))
            return
        self.said(host, result)
        for key in result.get("renewed", []):
            self._over_at[key] = until[key]
        if host.extra_s and not extra_s and set(result.get("renewed", [])) >= set(keys):
            self._board.record(host, extra_s=0.0)

    def _give_up(self, host: LiveHost | None, mine: dict[str, Leased], now: float) -> None:
        for juid, leased in mine.items():
            if not leased.handed or self._over_at[leased.key] > now:
                continue
            name = leased.host.partition("/")[2]
            why = f": {host.message}" if host and host.message else ""
            message = f"host {name} has not answered for longer than the lease of {leased.lease_s:g} s{why}"
            log.warning("%s: %s", leased.key, message)
            conclude(self._jobs, juid, {"state": State.LOST, "reason": Reason.HOST_LOST, "message": message})
