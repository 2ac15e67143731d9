"""job.yml without the driver: units, and the spec of an attempt (filters monkey.runner.attempt_spec, .persist_items,
.data_items)."""

from __future__ import annotations

import pytest
from ansible_collections.monkey.runner.plugins.module_utils import job_spec, units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90), ("90", 90), ("90m", 5400), ("1h30m", 5400), ("01:30:00", 5400), ("30:00", 1800), ("1-00:00:00", 86400)],
)
def test_durations(text: object, seconds: float) -> None:
    assert units.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", -5, 0, "1h-", True, None, "nan", "inf", float("inf")])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(units.UnitError, match="expected"):
        units.duration_s(text)


@pytest.mark.parametrize(("text", "size"), [(512, 512), ("512MB", 512), ("8GB", 8192), ("2G", 2048), ("1.5GiB", 1536)])
def test_memory(text: object, size: int) -> None:
    assert units.memory_mb(text) == size


@pytest.mark.parametrize("text", ["much", "-1GB", 0, "8XB", True])
def test_what_is_no_memory(text: object) -> None:
    with pytest.raises(units.UnitError, match="expected"):
        units.memory_mb(text)


def test_a_command_line_is_split_as_a_shell_would_and_a_list_is_taken_as_it_is() -> None:
    assert job_spec.attempt_spec({"command": "echo 'a b'"}, "j-1")["command"] == ["echo", "a b"]
    assert job_spec.attempt_spec({"command": ["echo", "$(id) {{ x }}"]}, "j-1")["command"] == ["echo", "$(id) {{ x }}"]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({}, "command"),
        ({"command": []}, "command"),
        ({"command": ["true"], "time_limit": "soon"}, "time_limit"),
        ({"command": ["true"], "resources": {"cpu": 1}}, "resources.cpu"),
        ({"command": ["true"], "resources": {"cpus": -1}}, "cpus"),
        ({"command": ["true"], "name": "a/b"}, "name"),
        ({"command": ["true"], "env": "A=B"}, "env"),
    ],
)
def test_bad_keys_are_named(keys: dict[str, object], named: str) -> None:
    with pytest.raises(job_spec.JobSpecError, match=named):
        job_spec.attempt_spec(keys, "j-1")


def test_persisted_folders_and_data_stay_in_the_folder() -> None:
    assert job_spec.persist_items(["output", {"name": "ck", "path": "a/b/"}]) == [
        {"path": "output", "name": "output"},
        {"path": "a/b", "name": "ck"},
    ]
    for path in ("../x", "/x", ".", ""):
        with pytest.raises(job_spec.JobSpecError, match="persist"):
            job_spec.persist_items([path])
        with pytest.raises(job_spec.JobSpecError, match="data"):
            job_spec.data_items([{"name": "d", "path": path}], "/code")


def test_data_items_with_and_without_trees() -> None:
    data = [{"name": "digits", "path": "data"}, {"path": "more"}]
    assert [item["path"] for item in job_spec.data_items(data, "/code")] == ["/code/data", "/code/more"]
    trees = {"digits": "a" * 64, "data-1": "b" * 64}
    assert job_spec.data_items(data, "/code", trees)[1] == {"name": "data-1", "path": "more", "tree": "b" * 64}
