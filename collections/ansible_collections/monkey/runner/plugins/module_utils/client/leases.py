"""The daemon's view of leases: whom a renewal counts for, and whose lease has ended.

A lease is the file ``lease`` of its attempt: it holds the id of this boot, and its modification time is the moment at
which it ends, in seconds since boot. Renewing is one utime(2) for each attempt that is named: whole or not at all, no
block needed on a full disk, 3 ms for 1,000 of them. Keepers look at it when their timer fires; they are signalled only
when extra time is taken back.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from .attempt import Attempt
from .files import ClientError, boot_seconds
from .reporting import complain
from .spec import amount, check_key

# A lease that ended is looked at this often until its attempt has ended too.
_LOOK_AGAIN_S = 1.0


class _Lease:
    def __init__(self, attempt: Attempt, seconds: float, grace_s: float, until: Optional[float]) -> None:
        self.attempt = attempt
        self.seconds = seconds
        self.grace_s = grace_s
        self.free = until is None
        self.until = float("inf") if until is None else until
        # The moment from which it counts. Who set it is not on record: with extra time it was before now.
        self.at = min(self.until - seconds, boot_seconds())


class Over(NamedTuple):
    """An attempt whose lease ended ``late_s`` ago."""

    attempt: Attempt
    late_s: float
    grace_s: float


class Leases:
    """Every attempt of the host that has not ended, with a lease or without.

    ``shortened`` is called for one whose lease was made shorter: its keeper's timer is set too late.
    """

    def __init__(self, shortened: Callable[[str], None]) -> None:
        self._shortened = shortened
        self._held: Dict[str, _Lease] = {}
        # No lease ends before this (CLOCK_BOOTTIME).
        self._due = float("inf")

    def follow(self, attempt: Attempt) -> None:
        """An attempt is on the host."""
        spec = attempt.spec()
        lease = _Lease(attempt, spec.get("lease_s") or 0.0, spec.get("grace_s", 0.0), attempt.lease_until())
        self._held[attempt.key] = lease
        self._due = min(self._due, lease.until)

    def drop(self, key: str) -> None:
        """An attempt ended."""
        self._held.pop(key, None)

    def due(self) -> Optional[float]:
        """When to call ``over`` again, in seconds since boot; None for not before something is followed."""
        return self._due if self._held and self._due < float("inf") else None

    def renew(self, at: float, keys: List[str], extra_s: float) -> Dict[str, List[str]]:
        """Let the leases of the attempts named end at ``at + lease_s + extra_s``.

        ``at`` is a moment that this host named. The latest moment counts, not the latest message: one that was held up
        changes nothing, while one that is newer takes back extra time too. ``renewed``: they end then, no later (or
        have no lease). ``over``: ended, ending, or not here; a lease that ended is never begun anew. In neither list:
        what was said later counts, or it could not be written.
        """
        answer: Dict[str, List[str]] = {"renewed": [], "over": []}
        now = boot_seconds()
        for key in keys:
            lease = self._held.get(key)
            if lease is None or lease.until <= now:
                answer["over"].append(key)
                continue
            # What names a moment to come was said by another boot.
            moment = min(at, now)
            until = moment + lease.seconds + extra_s
            if lease.free or (moment == lease.at and until == lease.until):
                answer["renewed"].append(key)
                continue
            if moment < lease.at or (moment == lease.at and until < lease.until):
                continue
            try:
                lease.attempt.set_lease(until)
            except OSError as error:
                complain(f"{key}: lease: {error}")
                continue
            shorter = until < lease.until
            lease.at, lease.until = moment, until
            if shorter:
                self._shortened(key)
            self._due = min(self._due, until)
            answer["renewed"].append(key)
        return answer

    def over(self) -> List[Over]:
        """The attempts whose lease has ended, when it is time to look."""
        now = boot_seconds()
        if now < self._due:
            return []
        found = [lease for lease in self._held.values() if lease.until <= now]
        self._due = min((lease.until for lease in self._held.values() if lease.until > now), default=float("inf"))
        if found:
            self._due = min(self._due, now + _LOOK_AGAIN_S)
        return [Over(lease.attempt, now - lease.until, lease.grace_s) for lease in found]


def check_renewal(at: object, attempts: object, extra_s: object) -> List[str]:
    """The keys that a renewal names. Raises ClientError."""
    amount("at", at)
    amount("extra_s", extra_s)
    if not isinstance(attempts, list):
        raise ClientError(f"attempts: expected a list of JUID.n, got {attempts!r}")
    for key in attempts:
        juid, _dot, number = str(key).rpartition(".")
        check_key(juid, int(number) if number.isdigit() else number)
    return [str(key) for key in attempts]
