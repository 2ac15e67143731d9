"""One step of the scheduler: what goes where now, and why the rest waits."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from monkey.scheduler import reasons
from monkey.scheduler.needs import HostView, Need, Placement, Waiting, Wave
from monkey.scheduler.policies import DEFAULT_POLICY, Policy, policy_named
from monkey.scheduler.queue import LaneKey, Queue, Turn, lane_of, turn

_OTHERS_KEPT = 10


@dataclass
class Decision:
    """What one step decided.

    Attributes:
        waves: what goes out.
        placements: for each job that goes out why it goes there.
        waiting: for each lane that has jobs left why they wait; ``juid`` is the first of them.
    """

    waves: list[Wave] = field(default_factory=list)
    placements: dict[str, Placement] = field(default_factory=dict)
    waiting: dict[LaneKey, Waiting] = field(default_factory=dict)

    def why(self, need: Need) -> Waiting | None:
        """Why a job waits; None when it goes out, or when nothing like it was in the queue then."""
        if need.juid in self.placements:
            return None
        found = self.waiting.get(lane_of(need))
        return Waiting(need.juid, found.reason, found.message) if found else None


def decide(
    queue: Queue,
    hosts: Iterable[HostView],
    *,
    policy: str = DEFAULT_POLICY,
    out: Mapping[str, int] | None = None,
) -> Decision:
    """Which queued jobs go where now, and why the others wait.

    Jobs are taken in the queue's order. One that does not fit now does not hold up those behind it on other hosts, but
    nothing passes it on a host that it could use: otherwise a large job would starve. What its own group holds back
    keeps no host. Once a job of a lane must wait, so do all behind it in the lane, as they ask for the same: a step
    costs lanes plus jobs that go out, not queued jobs.

    Args:
        queue: what waits; it is not changed.
        hosts: hosts of all providers, in inventory order.
        policy: name of the policy that chooses among hosts.
        out: for each group how many of its jobs are out now.

    Raises:
        UsageProblem: no such policy.
    """
    step = _Step(policy_named(policy), hosts, out or {})
    heads: list[tuple[Turn, Need, _Cursor]] = []
    for lane in queue.lanes:
        rest = iter(lane)
        need = next(rest)
        heads.append((turn(need), need, _Cursor(lane.key, rest)))
    heapq.heapify(heads)
    while heads:
        _, need, cursor = heads[0]
        following = next(cursor.rest, None) if step.place(need, cursor) else None
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (turn(following), following, cursor))
    return step.decision


@dataclass(slots=True)
class _Cursor:
    """How far a step has come in a lane. `hosts`: indexes of the provider's hosts that the lane may still use."""

    lane: LaneKey
    rest: Iterator[Need]
    hosts: list[int] | None = None


class _Step:
    def __init__(self, policy: Policy, hosts: Iterable[HostView], out: Mapping[str, int]) -> None:
        self.decision = Decision()
        self._policy = policy
        self._out = out
        self._sent: Counter[str] = Counter()
        self._hosts: dict[str, list[HostView]] = {}
        for host in hosts:
            self._hosts.setdefault(host.provider, []).append(host)
        self._held: dict[tuple[str, str], Need] = {}
        self._waves: dict[tuple[str, str], Wave] = {}
        self._first_waiting: dict[str, Waiting] = {}
        self._stopped: dict[str, Waiting] = {}

    def place(self, need: Need, cursor: _Cursor) -> bool:
        """Send a job out, or note why its lane waits."""
        if need.group is not None and need.max_parallel is not None:
            out = self._out.get(need.group, 0) + self._sent[need.group]
            if out >= need.max_parallel:
                return self._wait(cursor, reasons.for_queue(need, out))
        hosts = self._hosts.get(need.provider, [])
        if cursor.hosts is None:
            cursor.hosts = _able(need, hosts)
        if not cursor.hosts:
            return self._wait(cursor, reasons.no_candidate(need, hosts))
        if need.provider in self._stopped:
            return self._wait(cursor, reasons.for_strict(need, self._stopped[need.provider]))
        # Room only becomes less within a step: a host that is out for this lane stays out.
        cursor.hosts = [
            i for i in cursor.hosts if hosts[i].fits(need) and (need.provider, hosts[i].name) not in self._held
        ]
        if not cursor.hosts:
            return self._stop(need, cursor, hosts)
        free = [hosts[i] for i in cursor.hosts]
        chosen = self._policy.choose(need, free)
        at = cursor.hosts[next(n for n, host in enumerate(free) if host is chosen)]
        self.decision.placements[need.juid] = self._placement(need, chosen, free, hosts)
        hosts[at] = chosen.holding(need.cpus, need.gpus, need.memory_mb or 0)
        if need.group is not None:
            self._sent[need.group] += 1
        wave = self._waves.get((need.provider, need.shape))
        if wave is None:
            wave = self._waves[(need.provider, need.shape)] = Wave(need.provider, need.shape)
            self.decision.waves.append(wave)
        wave.hosts.setdefault(chosen.name, []).append(need.juid)
        return True

    def _wait(self, cursor: _Cursor, why: Waiting) -> bool:
        self.decision.waiting[cursor.lane] = why
        self._first_waiting.setdefault(cursor.lane[0], why)
        return False

    def _stop(self, need: Need, cursor: _Cursor, hosts: Sequence[HostView]) -> bool:
        """The job must wait: keep for it what it could use."""
        candidates = [hosts[i] for i in _able(need, hosts)]
        why = reasons.not_now(need, candidates, self._held)
        for host in candidates:
            self._held.setdefault((host.provider, host.name), need)
        if self._policy.strict:
            self._stopped[need.provider] = why
        return self._wait(cursor, why)

    def _placement(
        self, need: Need, chosen: HostView, free: Sequence[HostView], hosts: Sequence[HostView]
    ) -> Placement:
        if need.instance is not None:
            why = f"the job asks for host {chosen.name}"
        elif len(free) == 1:
            why = f"host {chosen.name} is the only one that could take it now"
        else:
            why = f"host {chosen.name} {self._policy.because.format(n=len(free))}: {chosen.free()} free"
        others: list[tuple[str, str]] = []
        if need.instance is None:
            # Those that could have had it first: they are what the policy had to choose from.
            others = [
                (h.name, f"could take it too: {h.free()} free") for h in free[: _OTHERS_KEPT + 1] if h is not chosen
            ]
            if len(others) < _OTHERS_KEPT:
                others += self._unfit(need, free, hosts)
        return Placement(
            chosen.name, self._policy.name, why, others[:_OTHERS_KEPT], self._first_waiting.get(need.provider)
        )

    def _unfit(self, need: Need, free: Sequence[HostView], hosts: Sequence[HostView]) -> list[tuple[str, str]]:
        """Hosts that could not have it, with why not; no more than are kept."""
        able = {host.name for host in free}
        found: list[tuple[str, str]] = []
        for host in hosts:
            if len(found) == _OTHERS_KEPT:
                break
            if host.name not in able:
                ahead = self._held.get((host.provider, host.name))
                words = host.why_not_now(need) or (f"kept for job {ahead.juid}, which is ahead" if ahead else "")
                found.append((host.name, words))
        return found


def _able(need: Need, hosts: Sequence[HostView]) -> list[int]:
    """Indexes of the hosts that could ever take it."""
    return [i for i, h in enumerate(hosts) if need.instance in (None, h.name) and h.could_ever(need)]
