"""The queue keeps its order whatever comes and goes, and a step does not look at each job of it."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from monkey.scheduler import HostView, Need, Queue, decide


def job(number: int, **more: object) -> Need:
    fields: dict[str, object] = {"juid": f"26-11-21-{number:03d}", "provider": "lab", "queued_at": number, **more}
    return Need(**fields)  # type: ignore[arg-type]


def in_order(queue: Queue) -> list[str]:
    """JUIDs by their position: what a user is told."""
    return sorted((need.juid for need in queue), key=queue.position)


def sent(queue: Queue, count: int) -> set[str]:
    host = HostView("lab", "a", cpus=1e9, gpus=0, max_jobs=count)
    return set(decide(queue, [host]).placements)


@pytest.mark.parametrize("seed", range(5))
def test_order_is_kept_under_random_adds_and_discards(seed: int) -> None:
    rng = random.Random(seed)
    queue, model = Queue(), {}
    for _ in range(6000):
        if model and rng.random() < 0.4:
            juid = rng.choice(list(model)) if len(model) < 300 else next(iter(model))
            queue.discard(juid)
            del model[juid]
        else:
            need = job(
                rng.randrange(100_000), priority=rng.randrange(3), queued_at=rng.randrange(50), cpus=rng.choice([1, 2])
            )
            queue.add(need)
            model[need.juid] = need
    expected = sorted(model.values(), key=lambda n: (-n.priority, n.queued_at, len(n.juid), n.juid))
    assert len(queue) == len(model) > 500
    assert in_order(queue) == [need.juid for need in expected]
    assert sum(len(lane) for lane in queue.lanes) == len(model)
    assert sent(queue, 100) == {need.juid for need in expected[:100]}


def test_one_long_lane_keeps_its_order() -> None:
    numbers = list(range(5000))
    random.Random(7).shuffle(numbers)
    queue = Queue(job(n) for n in numbers)
    for number in numbers[:2000]:
        queue.discard(job(number).juid)
    (lane,) = queue.lanes
    assert [need.queued_at for need in lane] == sorted(numbers[2000:])


def test_adding_a_job_again_replaces_it() -> None:
    queue = Queue([job(1), job(2)])
    queue.add(job(2, priority=9, cpus=3))
    assert len(queue) == 2
    assert queue.get("26-11-21-002") == job(2, priority=9, cpus=3)
    assert in_order(queue) == ["26-11-21-002", "26-11-21-001"]


def test_what_is_not_in_it() -> None:
    queue = Queue([job(1)])
    queue.discard("26-11-21-009")
    assert "26-11-21-001" in queue and "26-11-21-009" not in queue and queue.get("26-11-21-009") is None
    with pytest.raises(KeyError):
        queue.position("26-11-21-009")
    queue.discard("26-11-21-001")
    assert not len(queue) and not list(queue.lanes)


def test_positions_count_the_jobs_of_the_same_provider() -> None:
    queue = Queue([job(1), job(2, provider="cloud"), job(3, cpus=2), job(4)])
    assert [queue.position(job(n).juid) for n in (1, 2, 3, 4)] == [1, 1, 2, 3]


def test_jobs_that_ask_for_the_same_share_a_lane_whatever_their_priority() -> None:
    queue = Queue([job(1), job(2, priority=7), job(3, cpus=2.0), job(4, group="q", max_parallel=1)])
    assert sorted(len(lane) for lane in queue.lanes) == [1, 1, 2]


def _many(count: int, lanes: int) -> list[Need]:
    # Each text is made anew, as it comes out of the store.
    return [
        job(
            n, cpus=1 + n % lanes, priority=n % 5, shape="".join(["s" * 2000, str(n % 3)]), group="".join(["swe", "ep"])
        )
        for n in range(count)
    ]


def _step_s(queue: Queue) -> float:
    hosts = [HostView("lab", f"h{n}", cpus=500.0, gpus=0, used_cpus=500.0, running=9) for n in range(5)]
    times = []
    for _ in range(7):
        begun = time.process_time()
        decision = decide(queue, hosts)
        times.append(time.process_time() - begun)
        assert len(decision.waiting) == len(list(queue.lanes)) and not decision.waves
    return min(times)


def test_a_step_with_nothing_free_costs_the_same_with_100_000_jobs_as_with_100() -> None:
    few, many = Queue(_many(100, 100)), Queue(_many(100_000, 100))
    ratio = _step_s(many) / _step_s(few)
    assert ratio < 5, f"1000 times the jobs cost {ratio:.1f} times the step"


def test_a_queued_job_takes_less_than_600_bytes() -> None:
    # 60 MB for 100,000: the texts that jobs have in common are held once.
    tracemalloc.start()
    try:
        queue = Queue(_many(20_000, 200))
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / len(queue) < 600
