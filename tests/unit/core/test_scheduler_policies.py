"""Policies: which of the hosts that could take a job gets it."""

from __future__ import annotations

import pytest

from monkey.errors import UsageProblem
from monkey.scheduler import DEFAULT_POLICY, POLICIES, HostView, Need, Queue, decide, policy_named

HOSTS = [
    HostView("lab", "half", cpus=8.0, gpus=0, memory_mb=8000, used_cpus=4.0, running=1),
    HostView("lab", "tight", cpus=2.0, gpus=0, memory_mb=2000, used_cpus=1.0, running=1),
    HostView("lab", "free", cpus=6.0, gpus=0, memory_mb=9000),
    HostView("lab", "gpu", cpus=4.0, gpus=2, memory_mb=4000),
]


def chosen(policy: str, need: Need, hosts: list[HostView] = HOSTS) -> str:
    return decide(Queue([need]), hosts, policy=policy).placements[need.juid].host


def job(number: int, **more: object) -> Need:
    fields: dict[str, object] = {"juid": f"26-11-21-{number:03d}", "provider": "lab", "queued_at": number, **more}
    return Need(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "host"), [("smart", "free"), ("fifo", "free"), ("frugal", "tight"), ("sequential", "half")]
)
def test_each_policy_has_its_host(policy: str, host: str) -> None:
    assert chosen(policy, job(1)) == host


def test_smart_looks_at_gpus_first_when_gpus_are_asked_for() -> None:
    hosts = [HostView("lab", "one", cpus=64.0, gpus=1), HostView("lab", "two", cpus=2.0, gpus=2)]
    assert chosen("smart", job(1, gpus=1), hosts) == "two"
    assert chosen("smart", job(1), hosts) == "one"


def test_smart_decides_between_equals_by_memory_then_by_jobs_then_by_order() -> None:
    def hosts(**second: object) -> list[HostView]:
        same: dict[str, object] = {"cpus": 4.0, "gpus": 0, "memory_mb": 100, "running": 1}
        return [HostView("lab", "first", **same), HostView("lab", "second", **{**same, **second})]  # type: ignore[arg-type]

    assert chosen("smart", job(1), hosts(memory_mb=200)) == "second"
    assert chosen("smart", job(1), hosts(running=0)) == "second"
    assert chosen("smart", job(1), hosts()) == "first"


def test_frugal_packs_and_leaves_whole_machines_for_large_jobs() -> None:
    hosts = [HostView("lab", name, cpus=4.0, gpus=0) for name in "abc"]
    queue = Queue(job(n) for n in range(1, 6))
    placements = decide(queue, hosts, policy="frugal").placements
    assert [placements[f"26-11-21-{n:03d}"].host for n in range(1, 6)] == ["a", "a", "a", "a", "b"]
    spread = decide(queue, hosts, policy="smart").placements
    assert {p.host for p in spread.values()} == {"a", "b", "c"}


def test_frugal_keeps_gpus_for_jobs_that_ask_for_them() -> None:
    hosts = [HostView("lab", "gpu", cpus=1.0, gpus=1), HostView("lab", "plain", cpus=64.0, gpus=0)]
    assert chosen("frugal", job(1), hosts) == "plain"


def test_random_gives_the_same_answer_again_and_uses_every_host() -> None:
    hosts = [HostView("lab", name, cpus=4.0, gpus=0) for name in "abc"]
    first = [chosen("random", job(n), hosts) for n in range(60)]
    assert first == [chosen("random", job(n), hosts) for n in range(60)]
    assert set(first) == {"a", "b", "c"}


def test_fifo_lets_nothing_pass_the_head_and_the_others_do() -> None:
    hosts = [HostView("lab", "big", cpus=4.0, gpus=0, used_cpus=1.0, running=1), HostView("lab", "small", cpus=1.0)]
    queue = Queue([job(1, instance="big"), job(2, cpus=4.0), job(3)])
    for name in POLICIES:
        out = set(decide(queue, hosts, policy=name).placements)
        assert ("26-11-21-003" in out) == (name != "fifo"), name
    waits = decide(queue, hosts, policy="fifo").why(job(3))
    assert waits and waits.reason == "WAITING_FOR_TURN"
    assert (
        "policy fifo lets nothing pass job 26-11-21-002 of provider lab, which waits for a free slot" in waits.message
    )


def test_fifo_is_not_held_up_by_what_can_never_go_nor_by_a_queue_that_is_full() -> None:
    hosts = [HostView("lab", "a", cpus=4.0, gpus=0)]
    queue = Queue([job(1, cpus=99.0), job(2, group="q", max_parallel=1), job(3)])
    decision = decide(queue, hosts, policy="fifo", out={"q": 1})
    assert set(decision.placements) == {"26-11-21-003"}


def test_each_policy_says_in_one_line_what_it_does() -> None:
    assert set(POLICIES) == {"fifo", "sequential", "random", "smart", "frugal"}
    assert DEFAULT_POLICY == "smart"
    for name, policy in POLICIES.items():
        assert policy.name == name and policy.description and "\n" not in policy.description
        assert policy_named(name) is policy


def test_an_unknown_policy_names_the_nearest_and_all() -> None:
    with pytest.raises(
        UsageProblem, match=r"unknown policy 'fugal'; did you mean frugal\?; there are smart, frugal"
    ) as it:
        policy_named("fugal")
    assert it.value.field == "policy"
    with pytest.raises(UsageProblem):
        decide(Queue(), [], policy="x")
