"""What every store must do: the same tests run on the store in memory and on the one on disk."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monkey.store import BaseStore, Change, MemoryStore, Store, StoreClosedError, number_change


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    opened: BaseStore = MemoryStore() if request.param == "memory" else Store.open(tmp_path / "home")
    yield opened
    opened.close()


def job(juid: str, state: str = "QUEUED", **more: object) -> dict[str, object]:
    return {"juid": juid, "state": state, "nickname": "kob", "name": "mnist", **more}


def test_what_was_put_is_there(store: BaseStore) -> None:
    doc = {"text": "a 'b' \"c\"\n{{ d }} $(e) \U0001f412 \udcff", "list": [1, 2.5, None, True, {"k": []}], "empty": {}}
    store.put("hosts", "lab/1", doc)
    assert store.get("hosts", "lab/1") == doc
    assert store.items("hosts") == [("lab/1", doc)]


def test_absent_is_none(store: BaseStore) -> None:
    assert store.get("jobs", "26-11-21-001") is None
    assert store.latest_by_nickname("kob") is None
    assert store.by_state("QUEUED") == []
    assert store.counts() == {}
    assert list(store.iter_jobs()) == []


def test_put_replaces_and_delete_removes(store: BaseStore) -> None:
    store.put("meta", "k", {"v": 1})
    store.put("meta", "k", {"v": 2})
    assert store.get("meta", "k") == {"v": 2}
    store.delete("meta", "k")
    assert store.get("meta", "k") is None
    store.delete("meta", "k")


def test_callers_share_nothing_with_the_store(store: BaseStore) -> None:
    mine = {"list": [1]}
    store.put("meta", "k", mine)
    mine["list"].append(2)
    theirs = store.get("meta", "k")
    assert theirs == {"list": [1]}
    theirs["list"].append(3)
    assert store.get("meta", "k") == {"list": [1]}
    with store.transaction() as t:
        staged = t.get("meta", "k")
        assert staged is not None
        staged["list"].append(4)
        assert t.get("meta", "k") == {"list": [1]}


def test_jobs_are_found_by_state_as_it_changes(store: BaseStore) -> None:
    for n in (1, 2, 3):
        store.put("jobs", f"26-11-21-00{n}", job(f"26-11-21-00{n}"))
    store.put("jobs", "26-11-21-002", job("26-11-21-002", "RUNNING"))
    store.put("jobs", "26-11-21-001", job("26-11-21-001", "RUNNING"))
    assert store.by_state("RUNNING") == ["26-11-21-001", "26-11-21-002"]
    assert store.by_state("QUEUED") == ["26-11-21-003"]
    assert store.by_state("QUEUED", "RUNNING") == ["26-11-21-003", "26-11-21-001", "26-11-21-002"]
    assert store.counts() == {"RUNNING": 2, "QUEUED": 1}
    store.delete("jobs", "26-11-21-002")
    assert store.by_state("RUNNING") == ["26-11-21-001"]
    assert store.counts() == {"RUNNING": 1, "QUEUED": 1}


def test_jobs_come_oldest_first_and_newest_first(store: BaseStore) -> None:
    juids = ["26-11-20-999", "26-11-20-1000", "26-11-21-001"]
    for juid in juids:
        store.put("jobs", juid, job(juid))
    store.put("jobs", juids[0], job(juids[0], "RUNNING"))
    assert [doc["juid"] for doc in store.iter_jobs()] == juids
    assert [doc["juid"] for doc in store.iter_jobs(newest_first=True)] == juids[::-1]
    assert store.count_jobs() == 3


def test_iterating_goes_on_while_jobs_come_change_and_go(store: BaseStore) -> None:
    for juid in "abcd":
        store.put("jobs", juid, job(juid))
    oldest, newest, queued = store.iter_jobs(), store.iter_jobs(newest_first=True), store.iter_by_state("QUEUED")
    assert [next(oldest)["juid"], next(newest)["juid"], next(queued)] == ["a", "d", "a"]
    store.put("jobs", "e", job("e"))
    store.delete("jobs", "b")
    store.put("jobs", "c", job("c", "RUNNING"))
    assert [(doc["juid"], doc["state"]) for doc in oldest] == [("c", "RUNNING"), ("d", "QUEUED")]
    assert [(doc["juid"], doc["state"]) for doc in newest] == [("c", "RUNNING"), ("a", "QUEUED")]
    assert list(queued) == ["d"]


def test_jobs_are_listed_by_state_name_and_provider(store: BaseStore) -> None:
    for n in range(40):
        state, name = ("QUEUED", "FAILED", "LOST", "RUNNING")[n % 4], ("mnist", "other")[n % 2]
        store.put("jobs", f"{n:02d}", job(f"{n:02d}", state, name=name, provider=("lab", "cloud")[n >= 20]))

    def found(**wanted: object) -> list[str]:
        return [doc["juid"] for doc in store.iter_jobs(**wanted)]  # type: ignore[arg-type]

    assert found(states=["LOST"], newest_first=True)[:2] == ["38", "34"]
    assert found(states=["FAILED", "LOST"], provider="lab")[:3] == ["01", "02", "05"]
    assert found(name="other", provider="cloud") == [f"{n:02d}" for n in range(21, 40, 2)]
    assert found(states=[]) == found(name="mnst") == found(provider="x") == []


def test_jobs_on_a_host_are_found(store: BaseStore) -> None:
    for n in range(4):
        store.put("jobs", str(n), job(str(n), on_host=n % 2 == 0))
    assert store.on_host() == ["0", "2"]
    store.put("jobs", "0", job("0", on_host=False))
    store.put("jobs", "3", job("3", on_host=True))
    store.put("jobs", "1", job("1", "RUNNING", on_host=True))
    assert store.on_host() == ["1", "2", "3"]
    store.delete("jobs", "2")
    assert store.on_host() == ["1", "3"]


def test_the_first_of_a_state_is_the_oldest_also_after_it_came_back(store: BaseStore) -> None:
    assert store.first_by_state("QUEUED") is None
    for juid in "abc":
        store.put("jobs", juid, job(juid))
    store.put("jobs", "a", job("a", "RUNNING"))
    assert store.first_by_state("QUEUED") == "b"
    store.put("jobs", "a", job("a", "QUEUED"))
    assert store.first_by_state("QUEUED") == "a"
    assert list(store.iter_by_state("QUEUED", "RUNNING")) == store.by_state("QUEUED", "RUNNING") == ["a", "b", "c"]


def test_indexes_agree_with_the_documents_after_many_changes(store: BaseStore) -> None:
    """As many jobs as fill several buckets, changed and deleted at random, against a plain dict."""
    chance = random.Random(3)
    jobs: dict[str, dict[str, object]] = {}
    words = ("QUEUED", "RUNNING", "CLEANUP", "FAILED", "LOST")
    for _ in range(40):
        changes: list[Change] = []
        for _ in range(100):
            juid = str(chance.randrange(2000))
            if chance.random() < 0.1:
                jobs.pop(juid, None)
                changes.append(Change.delete("jobs", juid))
                continue
            on_host = chance.random() < 0.5
            jobs[juid] = job(juid, chance.choice(words), on_host=on_host, nickname=chance.choice(["kob", "wit"]))
            changes.append(Change.put("jobs", juid, jobs[juid]))
        store.commit(changes)
    keys = list(jobs)
    assert [doc["juid"] for doc in store.iter_jobs()] == keys
    assert [doc["juid"] for doc in store.iter_jobs(newest_first=True)] == keys[::-1]
    for word in words:
        expected = [key for key in keys if jobs[key]["state"] == word]
        assert store.by_state(word) == list(store.iter_by_state(word)) == expected
        assert store.counts()[word] == len(expected)
    assert store.on_host() == [key for key in keys if jobs[key]["on_host"]]
    assert store.latest_by_nickname("wit") == [key for key in keys if jobs[key]["nickname"] == "wit"][-1]
    assert store.summary()["jobs"] == store.count_jobs() == len(jobs)


def test_a_store_with_room_says_so(store: BaseStore) -> None:
    store.put("meta", "k", {"v": 1})
    store.put("jobs", "j", job("j"))
    assert not store.is_full
    assert store.probe_room()
    assert {**store.summary(), "state_bytes": 0, "journal_bytes": 0} == {
        "jobs": 1, "documents": 2, "seq": 2, "full": False, "state_bytes": 0, "journal_bytes": 0
    }  # fmt: skip
    seq, entries = store.entries()
    assert (seq, [(entry.table, entry.key) for entry in entries]) == (2, [("jobs", "j"), ("meta", "k")])


def test_newest_job_of_a_nickname_wins(store: BaseStore) -> None:
    for juid in ("26-11-20-999", "26-11-20-1000"):
        store.put("jobs", juid, job(juid))
    store.put("jobs", "26-11-20-999", job("26-11-20-999", "RUNNING"))
    assert store.latest_by_nickname("kob") == "26-11-20-1000"
    store.delete("jobs", "26-11-20-1000")
    assert store.latest_by_nickname("kob") == "26-11-20-999"


def test_a_nickname_is_live_until_its_jobs_ended(store: BaseStore) -> None:
    store.put("jobs", "a", job("a", "SUCCEEDED"))
    assert not store.nickname_is_live("kob")
    store.put("jobs", "b", job("b", "CLEANUP"))
    assert store.nickname_is_live("kob")
    store.put("jobs", "b", job("b", "LOST"))
    assert not store.nickname_is_live("kob")
    assert not store.nickname_is_live("wit")


def test_commit_makes_all_changes_in_order(store: BaseStore) -> None:
    store.commit([Change.put("meta", "a", {"v": 1}), Change.delete("meta", "a"), Change.put("jobs", "j", job("j"))])
    assert store.get("meta", "a") is None
    assert store.counts() == {"QUEUED": 1}


@pytest.mark.parametrize(
    "bad",
    [
        Change("jbos", "k", {}),
        Change("jobs", "", {}),
        Change("jobs", "k", {"v": float("nan")}),
        Change("jobs", "k", {"v": {1, 2}}),
        Change("jobs", "k", {"_key": "x"}),
        Change("jobs", "k", [1]),  # type: ignore[arg-type]
        Change("jobs", "k", {1: 2}),  # type: ignore[dict-item]
    ],
)
def test_one_bad_change_refuses_them_all(store: BaseStore, bad: Change) -> None:
    with pytest.raises((ValueError, TypeError)):
        store.commit([Change.put("jobs", "good", job("good")), bad])
    assert store.items("jobs") == []


def test_a_transaction_sees_its_own_changes_and_others_do_not(store: BaseStore) -> None:
    store.put("meta", "gone", {"v": 0})
    with store.transaction() as t:
        t.put("meta", "k", {"v": 1})
        t.delete("meta", "gone")
        assert t.get("meta", "k") == {"v": 1}
        assert t.get("meta", "gone") is None
        assert store.get("meta", "k") is None
        assert store.get("meta", "gone") == {"v": 0}
    assert store.get("meta", "k") == {"v": 1}
    assert store.get("meta", "gone") is None


def test_a_transaction_that_fails_changes_nothing(store: BaseStore) -> None:
    with pytest.raises(RuntimeError, match="half way"), store.transaction() as t:
        t.put("meta", "k", {"v": 1})
        t.next_number("26-11-21")
        raise RuntimeError("half way")
    assert store.items("meta") == []


def test_numbers_count_per_day_and_are_taken_with_the_commit(store: BaseStore) -> None:
    assert store.next_number("26-11-21") == 1
    assert store.next_number("26-11-21") == 1
    store.commit([number_change("26-11-21", 1)])
    assert store.next_number("26-11-21") == 2
    assert store.next_number("26-11-22") == 1
    with store.transaction() as t:
        assert [t.next_number("26-11-21"), t.next_number("26-11-21")] == [2, 3]
    assert store.next_number("26-11-21") == 4


def test_threads_never_get_the_same_number(store: BaseStore) -> None:
    numbers: list[int] = []

    def take() -> None:
        for _ in range(20):
            with store.transaction() as t:
                number = t.next_number("26-11-21")
                t.put("jobs", str(number), job(str(number)))
            numbers.append(number)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 81))
    assert store.count_jobs() == 80


def test_a_closed_store_refuses(store: BaseStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreClosedError):
        store.put("meta", "k", {})
    with pytest.raises(StoreClosedError):
        store.get("meta", "k")
    with pytest.raises(StoreClosedError):
        store.counts()
