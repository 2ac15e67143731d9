"""What holds for every step, tried on seeded random queues and hosts with each policy."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from monkey.scheduler import POLICIES, Decision, HostView, Need, Queue, decide


@dataclass
class Case:
    """One random instance, and what was decided."""

    needs: list[Need]
    hosts: list[HostView]
    out: dict[str, int]
    decision: Decision

    def went(self) -> dict[str, str]:
        return {juid: name for wave in self.decision.waves for name, juids in wave.hosts.items() for juid in juids}


def _host(rng: random.Random, provider: str, name: str) -> HostView:
    known = rng.random() > 0.1
    host = HostView(
        provider,
        name,
        cpus=float(rng.choice([1, 2, 4, 8])) if known else None,
        gpus=rng.choice([0, 0, 1, 4]) if known else None,
        memory_mb=rng.choice([None, 2000, 8000]) if known else None,
        max_jobs=rng.choice([None, None, 1, 3]),
        ready=known and rng.random() > 0.15,
        why_not="drained",
        launching=frozenset(rng.sample(["s0", "s1"], rng.choice([0, 0, 1]))),
    )
    for _ in range(rng.choice([0, 0, 1, 2])):
        more = host.holding(0.5, 0, 500)
        host = more if known and host.has_room(Need("x", provider, cpus=0.5, memory_mb=500)) else host
    return host


def _case(seed: int, policy: str) -> Case:
    rng = random.Random(f"{policy}/{seed}")
    hosts = [_host(rng, provider, f"h{n}") for provider in ("lab", "cloud") for n in range(rng.randrange(5))]
    needs = []
    for n in range(rng.randrange(60)):
        group = rng.choice([None, None, "q0", "q1"])
        needs.append(
            Need(
                f"26-11-21-{n:03d}",
                rng.choice(["lab", "lab", "cloud", "gone"]),
                instance=rng.choice([None, None, None, "h1"]),
                cpus=rng.choice([0.1, 0.5, 1, 1, 2, 4]),
                gpus=rng.choice([0, 0, 0, 1, 2]),
                memory_mb=rng.choice([None, None, 500, 3000]),
                priority=rng.randrange(3),
                queued_at=float(rng.randrange(20)),
                shape=rng.choice(["s0", "s1", "s2"]),
                group=group,
                max_parallel=rng.choice([None, 1, 4]) if group else None,
            )
        )
    rng.shuffle(needs)
    out = {"q0": rng.randrange(3)}
    return Case(needs, hosts, out, decide(Queue(needs), hosts, policy=policy, out=out))


CASES = [(seed, policy) for policy in POLICIES for seed in range(80)]


@pytest.fixture(scope="module")
def cases() -> dict[tuple[int, str], Case]:
    return {case: _case(*case) for case in CASES}


def _views(case: Case) -> dict[tuple[str, str], HostView]:
    return {(host.provider, host.name): host for host in case.hosts}


def test_the_cases_are_worth_something(cases: dict[tuple[int, str], Case]) -> None:
    placed = sum(len(case.went()) for case in cases.values())
    reasons = Counter(w.reason for case in cases.values() for w in case.decision.waiting.values())
    assert placed > 1000
    assert len(reasons) == 5 and min(reasons.values()) > 50, reasons


def test_no_host_gets_more_than_it_has(cases: dict[tuple[int, str], Case]) -> None:
    for case in cases.values():
        by_juid = {need.juid: need for need in case.needs}
        for key, host in _views(case).items():
            mine = [by_juid[j] for w in case.decision.waves if w.provider == key[0] for j in w.hosts.get(key[1], [])]
            if not mine:
                continue
            assert host.ready and not {need.shape for need in mine} & host.launching
            assert host.cpus is not None and host.used_cpus + sum(n.cpus for n in mine) <= host.cpus + 1e-6
            assert host.used_gpus + sum(n.gpus for n in mine) <= (host.gpus or 0)
            if host.memory_mb is not None:
                assert host.used_memory_mb + sum(n.memory_mb or 0 for n in mine) <= host.memory_mb
            assert host.max_jobs is None or host.running + len(mine) <= host.max_jobs
            assert all(need.instance in (None, host.name) for need in mine)


def test_no_queue_lets_out_more_than_any_of_its_jobs_allows(cases: dict[tuple[int, str], Case]) -> None:
    for case in cases.values():
        went = case.went()
        order = sorted(case.needs, key=lambda n: (-n.priority, n.queued_at, n.juid))
        out = Counter(case.out)
        for need in order:
            if need.juid in went and need.group:
                assert need.max_parallel is None or out[need.group] < need.max_parallel
                out[need.group] += 1


def test_each_job_goes_out_once_or_waits_with_a_reason(cases: dict[tuple[int, str], Case]) -> None:
    for case in cases.values():
        sent = [juid for wave in case.decision.waves for juids in wave.hosts.values() for juid in juids]
        assert len(sent) == len(set(sent)) and set(sent) == set(case.decision.placements)
        for need in case.needs:
            waits = case.decision.why(need)
            assert (need.juid in case.decision.placements) != (waits is not None)
            assert waits is None or (waits.juid == need.juid and waits.message)
        assert all(case.decision.placements[juid].host == name for juid, name in case.went().items())


def test_nothing_takes_a_host_that_a_job_ahead_waits_for(cases: dict[tuple[int, str], Case]) -> None:
    for (_, policy), case in cases.items():
        went, order = case.went(), sorted(case.needs, key=lambda n: (-n.priority, n.queued_at, n.juid))
        for i, ahead in enumerate(order):
            waits = case.decision.why(ahead)
            if waits is None or waits.reason in {"WAITING_FOR_QUEUE", "NO_HOST_FITS"}:
                continue
            for later in order[i + 1 :]:
                name = went.get(later.juid)
                if name is None or later.provider != ahead.provider:
                    continue
                usable = _views(case)[(later.provider, name)].could_ever(ahead) and ahead.instance in (None, name)
                assert not usable, f"{later} passed {ahead}"
                able = [h for h in case.hosts if h.provider == ahead.provider and h.could_ever(ahead)]
                held_up = any(ahead.instance in (None, h.name) for h in able)
                assert policy != "fifo" or not held_up, f"{later} passed {ahead}"


def test_no_slot_is_left_empty_that_the_first_in_line_could_have(cases: dict[tuple[int, str], Case]) -> None:
    for case in cases.values():
        first = min(case.needs, key=lambda n: (-n.priority, n.queued_at, n.juid), default=None)
        if first is None or (first.max_parallel or 9) <= case.out.get(first.group or "", 0):
            continue
        able = [h for h in case.hosts if h.provider == first.provider and first.instance in (None, h.name)]
        assert (first.juid in case.decision.placements) == any(h.fits(first) for h in able)


def test_the_same_input_gives_the_same_answer_in_whatever_order_jobs_came(cases: dict[tuple[int, str], Case]) -> None:
    for (seed, policy), case in cases.items():
        needs = list(case.needs)
        random.Random(seed).shuffle(needs)
        assert decide(Queue(needs), case.hosts, policy=policy, out=case.out) == case.decision
