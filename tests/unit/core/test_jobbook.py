"""Jobs on record: found, listed, handed in once, waited for."""

from __future__ import annotations

import asyncio

import pytest

from monkey.errors import IllegalChange, UsageProblem
from monkey.names import is_juid, is_nickname
from monkey.states import Reason, State

from .conftest import Parts


def test_a_job_is_found_by_juid_and_nickname_and_a_slip_is_named(parts: Parts) -> None:
    job = parts.add()
    assert is_juid(job["juid"])
    assert is_nickname(job["nickname"])
    assert parts.jobs.find(job["juid"])["juid"] == parts.jobs.find(job["nickname"])["juid"]
    with pytest.raises(UsageProblem, match="did you mean"):
        parts.jobs.find(job["juid"][:-1] + "x")


def test_the_same_key_again_is_the_same_job(parts: Parts) -> None:
    fields = {key: value for key, value in parts.add().items() if key not in {"juid", "nickname"}}
    first, again, other = (parts.jobs.add(dict(fields), key) for key in ("k1", "k1", "k2"))
    assert first["juid"] == again["juid"] != other["juid"]


def test_the_table_of_states_holds(parts: Parts) -> None:
    juid = parts.add()["juid"]
    with pytest.raises(IllegalChange):
        parts.jobs.change(juid, State.SUCCEEDED, Reason.EXITED)
    assert parts.jobs.get(juid)["state"] == State.QUEUED


def test_listing_filters_and_keeps_the_newest(parts: Parts) -> None:
    juids = [parts.add(name=f"n{n}")["juid"] for n in range(4)]
    parts.jobs.change(juids[0], State.CANCELLED, Reason.CANCELLED_BY_USER)

    def listed(**filters: object) -> list[str]:
        asked = {"state": None, "provider": None, "name": None, "limit": None, **filters}
        return [job["juid"] for job in parts.jobs.listing(**asked)]  # type: ignore[arg-type]

    assert listed() == juids
    assert listed(limit=2) == juids[2:]
    assert listed(state="finished") == juids[:1]
    assert listed(state="PENDING", name="n2") == [juids[2]]
    assert listed(provider="lab") == []
    with pytest.raises(UsageProblem, match="state"):
        listed(state="flying")


def test_environment_files_are_not_shown_but_kept(parts: Parts) -> None:
    run = {"env_type": "pip", "env_file": "r.txt", "env_content": "numpy", "image": None}
    job = parts.add(run=run)
    assert "env_content" not in parts.jobs.find(job["juid"])["run"]
    assert parts.jobs.get(job["juid"])["run"]["env_content"] == "numpy"


def test_who_waits_hears_of_a_change_at_once(parts: Parts) -> None:
    juid = parts.add()["juid"]

    async def story() -> None:
        waiting = asyncio.create_task(parts.jobs.wait(juid, 1, 30.0))
        await asyncio.sleep(0)
        parts.jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER)
        job = await asyncio.wait_for(waiting, 5.0)
        assert job["state"] == State.CANCELLED

    asyncio.run(story())
