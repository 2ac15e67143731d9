"""job.yml without the driver: the spec of an attempt (filters monkey.runner.attempt_spec, .persist_items,
.data_items)."""

from __future__ import annotations

import pytest
from ansible_collections.monkey.runner.plugins.module_utils import job_spec


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
