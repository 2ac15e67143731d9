"""The scheduler's rules, each as a story of jobs and hosts."""

from __future__ import annotations

from dataclasses import asdict

from monkey.scheduler import Decision, HostView, Need, Queue, decide, shape_of


def host(name: str, **more: object) -> HostView:
    fields: dict[str, object] = {"provider": "lab", "name": name, "cpus": 2.0, "gpus": 0, "memory_mb": 4000, **more}
    return HostView(**fields)  # type: ignore[arg-type]


def need(number: int, **more: object) -> Need:
    juid = f"26-11-21-{number:03d}"
    fields: dict[str, object] = {"juid": juid, "provider": "lab", "queued_at": float(number), **more}
    return Need(**fields)  # type: ignore[arg-type]


def where(decision: Decision) -> dict[int, str]:
    """Number of each job that goes out, and its host."""
    return {int(juid[-3:]): name for wave in decision.waves for name, juids in wave.hosts.items() for juid in juids}


def step(needs: list[Need], hosts: list[HostView], **more: object) -> Decision:
    return decide(Queue(needs), hosts, **more)  # type: ignore[arg-type]


def why(decision: Decision, which: Need) -> tuple[str, str]:
    found = decision.why(which)
    assert found and found.juid == which.juid
    return found.reason, found.message


def test_jobs_spread_over_hosts_and_the_rest_waits_for_a_slot() -> None:
    needs = [need(n) for n in range(1, 6)]
    decision = step(needs, [host("a"), host("b")])
    assert {name: len(juids) for name, juids in decision.waves[0].hosts.items()} == {"a": 2, "b": 2}
    assert len(decision.waves) == 1
    reason, message = why(decision, needs[4])
    assert reason == "WAITING_FOR_SLOT"
    assert message == (
        "waits for a free slot (1 CPU) on provider lab: 4 running jobs hold the 2 hosts that could take it"
    )
    assert decision.why(needs[0]) is None


def test_the_queue_is_left_as_it_is() -> None:
    queue = Queue([need(1), need(2)])
    assert decide(queue, [host("a")]) == decide(queue, [host("a")])
    assert len(queue) == 2


def test_priority_goes_before_age() -> None:
    assert where(step([need(1), need(2, priority=5)], [host("a", cpus=1.0)])) == {2: "a"}


def test_the_thousandth_job_of_a_day_is_behind_the_one_before() -> None:
    assert where(step([need(1000, queued_at=1.0), need(999, queued_at=1.0)], [host("a", cpus=1.0)])) == {999: "a"}


def test_an_instance_that_is_asked_for_is_the_only_one() -> None:
    decision = step([need(1, instance="b")], [host("a"), host("b")])
    assert where(decision) == {1: "b"}
    assert decision.placements["26-11-21-001"].why == "the job asks for host b"


def test_a_host_that_is_not_ready_gets_nothing_and_says_why() -> None:
    decision = step([need(1)], [host("a", ready=False, why_not="drained by you: new disk")])
    assert not decision.waves
    assert why(decision, need(1)) == (
        "WAITING_FOR_HOST",
        "waits for host a of provider lab: drained by you: new disk",
    )


def test_a_drained_host_is_named_beside_the_full_ones() -> None:
    hosts = [host("a").holding(2.0, 0, 0), host("b", ready=False, why_not="drained after 3 failures")]
    reason, message = why(step([need(1)], hosts), need(1))
    assert reason == "WAITING_FOR_SLOT"
    assert message.endswith("1 running job holds host a; host b is not ready: drained after 3 failures")


def test_a_host_that_was_never_looked_at_gets_nothing_yet() -> None:
    unknown = host("a", cpus=None, gpus=None, memory_mb=None, ready=False, why_not="it is being looked at")
    assert why(step([need(1, cpus=64)], [unknown]), need(1, cpus=64))[0] == "WAITING_FOR_HOST"


def test_what_no_host_could_ever_meet_says_the_largest_there_is() -> None:
    big = need(1, cpus=8)
    hosts = [host("a"), host("b", cpus=4.0)]
    assert why(step([big], hosts), big) == (
        "NO_HOST_FITS",
        "no host of provider lab could ever take it: it asks for 8 CPU, the largest has 4",
    )
    apart = need(2, cpus=4, memory_mb=4000)
    assert (
        "no host has all of that together" in why(step([apart], [host("a"), host("b", cpus=4, memory_mb=10)]), apart)[1]
    )


def test_a_provider_without_hosts_and_a_host_that_is_gone() -> None:
    assert why(step([need(1)], []), need(1)) == ("WAITING_FOR_HOST", "waits for a host: provider lab has none")
    gone = need(2, instance="x")
    assert "host x, which provider lab does not have any more" in why(step([gone], [host("a")]), gone)[1]


def test_max_jobs_gpus_and_memory_are_limits() -> None:
    assert where(step([need(1), need(2)], [host("a", max_jobs=1)])) == {1: "a"}
    assert where(step([need(1, gpus=1), need(2, gpus=1)], [host("a", gpus=1)])) == {1: "a"}
    assert where(step([need(1, memory_mb=3000), need(2, memory_mb=3000)], [host("a")])) == {1: "a"}


def test_fractions_of_a_cpu_fill_it() -> None:
    needs = [need(n, cpus=0.1) for n in range(1, 12)]
    assert len(where(step(needs, [host("a", cpus=1.0)]))) == 10


def test_small_jobs_do_not_starve_a_large_one() -> None:
    large, small = need(1, cpus=2.0), need(2, cpus=1.0)
    decision = step([large, small], [host("a").holding(1.0, 0, 0)])
    assert not decision.waves
    assert why(decision, large)[0] == "WAITING_FOR_SLOT"
    assert why(decision, small) == (
        "WAITING_FOR_TURN",
        "waits behind job 26-11-21-001 (2 CPU), which is ahead and can use the same hosts",
    )


def test_a_small_job_goes_to_a_host_that_the_large_one_could_never_use() -> None:
    hosts = [host("big").holding(1.0, 0, 0), host("small", cpus=1.0)]
    decision = step([need(1, cpus=2.0), need(2)], hosts)
    assert where(decision) == {2: "small"}
    placement = decision.placements["26-11-21-002"]
    assert placement.behind and placement.behind.juid == "26-11-21-001"
    assert placement.others == [("big", "kept for job 26-11-21-001, which is ahead")]


def test_max_parallel_of_a_queue_counts_what_is_out_and_what_goes_out() -> None:
    needs = [need(n, group="sweep-7", max_parallel=3) for n in range(1, 5)]
    decision = step(needs, [host("a", cpus=8.0)], out={"sweep-7": 1, "other": 9})
    assert where(decision) == {1: "a", 2: "a"}
    assert why(decision, needs[3]) == ("WAITING_FOR_QUEUE", "3 of at most 3 jobs of queue sweep-7 are out")


def test_jobs_of_a_queue_without_a_limit_of_their_own_count_for_the_others() -> None:
    needs = [need(1, group="q"), need(2, group="q", max_parallel=1), need(3, group="q", max_parallel=2)]
    assert where(step(needs, [host("a", cpus=8.0)])) == {1: "a", 3: "a"}


def test_what_its_own_queue_holds_back_keeps_no_host() -> None:
    held = need(1, cpus=2.0, group="q", max_parallel=1)
    assert where(step([held, need(2)], [host("a")], out={"q": 1})) == {2: "a"}


def test_providers_do_not_wait_for_each_other() -> None:
    needs = [need(1, cpus=2.0), need(2, provider="cloud")]
    hosts = [host("a").holding(1.0, 0, 0), host("a", provider="cloud")]
    assert where(step(needs, hosts, policy="fifo")) == {2: "a"}


def test_shapes_go_in_waves_of_their_own() -> None:
    none, pip = shape_of({"kind": "none"}, []), shape_of({"kind": "pip", "content": "numpy"}, [])
    decision = step([need(1, shape=none), need(2, shape=pip)], [host("a")])
    assert sorted(wave.shape for wave in decision.waves) == sorted([none, pip])


def test_a_shape_whose_launch_is_under_way_waits_for_the_next_wave() -> None:
    shape = shape_of({"kind": "none"}, [])
    busy = [host("a", launching=frozenset({shape}))]
    decision = step([need(1, shape=shape)], busy)
    assert not decision.waves
    assert "launch that is under way on host a" in why(decision, need(1, shape=shape))[1]
    assert where(step([need(1, shape="other")], busy)) == {1: "a"}


def test_a_placement_says_what_else_was_considered_and_can_be_kept_as_a_record() -> None:
    hosts = [
        host("a"),
        host("b", cpus=4.0),
        host("full").holding(2.0, 0, 0),
        host("tiny", cpus=0.5),
        host("away", ready=False, why_not="connection refused"),
        *(host(f"more{n}", cpus=1.0) for n in range(20)),
    ]
    placement = asdict(step([need(1)], hosts).placements["26-11-21-001"])
    assert placement["host"] == "b" and placement["policy"] == "smart" and placement["behind"] is None
    assert placement["why"] == ("host b has the most free of the 22 hosts that could take it now: 4 CPU, 4000 MB free")
    assert len(placement["others"]) == 10
    few = dict(step([need(1)], hosts[:5]).placements["26-11-21-001"].others)
    assert few == {
        "a": "could take it too: 2 CPU, 4000 MB free",
        "full": "not enough free: 0 CPU, 4000 MB",
        "tiny": "too small: it has 0.5 CPU, 4000 MB",
        "away": "connection refused",
    }


def test_a_job_that_came_after_the_step_has_no_answer_yet() -> None:
    assert step([need(1)], [host("a")]).why(need(2, cpus=7)) is None
