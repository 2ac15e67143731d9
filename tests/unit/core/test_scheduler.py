"""The scheduler's rules, each as a story of jobs and hosts."""

from __future__ import annotations

from monkey.scheduler import HostView, Need, decide, shape_of


def host(name: str, **more: object) -> HostView:
    fields: dict[str, object] = {"provider": "lab", "name": name, "cpus": 2.0, "gpus": 0, "memory_mb": 4000, **more}
    return HostView(**fields)  # type: ignore[arg-type]


def need(number: int, **more: object) -> Need:
    juid = f"26-11-21-{number:03d}"
    fields: dict[str, object] = {"juid": juid, "provider": "lab", "queued_at": float(number), **more}
    return Need(**fields)  # type: ignore[arg-type]


def placed(needs: list[Need], hosts: list[HostView]) -> dict[str, str]:
    waves, _ = decide(needs, hosts)
    return {juid: name for wave in waves for name, juids in wave.hosts.items() for juid in juids}


def test_jobs_spread_over_hosts_and_the_rest_waits_for_a_slot() -> None:
    waves, waiting = decide([need(n) for n in range(1, 6)], [host("a"), host("b")])
    assert len(waves) == 1
    assert {name: len(juids) for name, juids in waves[0].hosts.items()} == {"a": 2, "b": 2}
    assert [(why.juid, why.reason) for why in waiting] == [("26-11-21-005", "WAITING_FOR_SLOT")]


def test_priority_goes_before_age() -> None:
    assert placed([need(1), need(2, priority=5)], [host("a", cpus=1.0)]) == {"26-11-21-002": "a"}


def test_an_instance_that_is_asked_for_is_the_only_one() -> None:
    assert placed([need(1, instance="b")], [host("a"), host("b")]) == {"26-11-21-001": "b"}


def test_a_host_that_is_not_ready_gets_nothing_and_says_why() -> None:
    waves, waiting = decide([need(1)], [host("a", ready=False, why_not="connection refused")])
    assert not waves
    assert waiting[0].reason == "WAITING_FOR_HOST"
    assert "connection refused" in waiting[0].message


def test_max_jobs_gpus_and_memory_are_limits() -> None:
    assert placed([need(1), need(2)], [host("a", max_jobs=1)]) == {"26-11-21-001": "a"}
    assert placed([need(1, gpus=1), need(2, gpus=1)], [host("a", gpus=1)]) == {"26-11-21-001": "a"}
    assert placed([need(1, memory_mb=3000), need(2, memory_mb=3000)], [host("a")]) == {"26-11-21-001": "a"}


def test_what_is_held_already_counts() -> None:
    assert placed([need(1)], [host("a").holding(1.5, 0, 0)]) == {}


def test_small_jobs_do_not_starve_a_large_one() -> None:
    busy = host("a").holding(1.0, 0, 0)
    waves, waiting = decide([need(1, cpus=2.0), need(2, cpus=1.0)], [busy])
    assert not waves
    assert len(waiting) == 2


def test_a_small_job_goes_to_a_host_that_the_large_one_could_never_use() -> None:
    hosts = [host("big").holding(1.0, 0, 0), host("small", cpus=1.0)]
    assert placed([need(1, cpus=2.0), need(2)], hosts) == {"26-11-21-002": "small"}


def test_shapes_go_in_waves_of_their_own() -> None:
    none, pip = shape_of({"kind": "none"}, []), shape_of({"kind": "pip", "content": "numpy"}, [])
    waves, _ = decide([need(1, shape=none), need(2, shape=pip)], [host("a")])
    assert sorted(wave.shape for wave in waves) == sorted([none, pip])


def test_a_shape_whose_launch_is_under_way_waits_for_the_next_wave() -> None:
    shape = shape_of({"kind": "none"}, [])
    assert placed([need(1, shape=shape)], [host("a", launching=frozenset({shape}))]) == {}
    assert placed([need(1, shape="other")], [host("a", launching=frozenset({shape}))]) == {"26-11-21-001": "a"}
