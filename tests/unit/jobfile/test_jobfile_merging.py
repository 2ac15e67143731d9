"""Flags over the job file, and amounts of time and memory."""

from pathlib import Path
from typing import Any

import pytest

from monkey.errors import UsageProblem
from monkey.jobfile import JobFile, load, merge, parse_duration_s, parse_memory_mb

FILES = Path(__file__).parent / "files"


def test_nothing_overridden_changes_nothing() -> None:
    for name in ("original_aws", "original_gcp", "everything"):
        job = load(FILES / f"{name}.yml")
        assert merge(job, {}) == job
        assert merge(job, {"name": None, "resources.cpus": None}) == job


def test_flags_replace_and_env_is_laid_over() -> None:
    job = merge(
        load(FILES / "everything.yml"),
        {
            "name": "other",
            "command": ["echo", "a b"],
            "time_limit": "90m",
            "resources.cpus": "2",
            "resources.memory": "1G",
            "env": ("RATE=0.2", "NEW=a=b", "EMPTY="),
            "run.env_type": "none",
            "setup": (),
        },
    )
    assert (job.name, job.command, job.time_limit_s) == ("other", ["echo", "a b"], 5400)
    assert (job.resources.cpus, job.resources.gpus, job.memory_mb) == (2, 2, 1024)
    assert job.env == {"RATE": "0.2", "DEBUG": "true", "WHEN": "2026-11-21", "EMPTY": "", "NEW": "a=b"}
    assert (job.run.env_type, job.setup) == ("none", [])


def test_the_job_file_itself_stays_as_it_was() -> None:
    job = load(FILES / "everything.yml")
    before = job.model_dump()
    merge(job, {"env": {"RATE": "9"}, "name": "x"})
    assert job.model_dump() == before


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"name": "a b"}, "--name: 'a b' is not a name; expected 1 to 64"),
        ({"time_limit": "-5"}, "--time-limit: expected a time such as 90m, 1h30m"),
        ({"resources.cpus": "many"}, "--cpus: expected a number, found 'many'"),
        ({"resources.cpus": "0"}, "--cpus: expected a number above 0, found 0"),
        ({"resources.gpus": "1.5"}, "--gpus: expected a whole number, found 1.5"),
        ({"resources.gpus": -1}, "--gpus: expected a number of at least 0, found -1"),
        ({"resources.memory": "big"}, "--memory: expected memory such as 8GB, 512MB or 2G, found 'big'"),
        ({"env": ["NOVALUE"]}, "--env: expected NAME=VALUE, found 'NOVALUE'"),
        ({"env": ["=x"]}, "--env: expected NAME=VALUE, found '=x'"),
        ({"env": ["A B=x"]}, "--env: 'A B' is not a name of a variable"),
        ({"command": []}, "--command: expected a command"),
        ({"num_nodes": "2"}, "--num-nodes: is not supported yet"),
        ({"retries": "-1"}, "--retries: expected a whole number from 0 to 100, found -1"),
        ({"priority": "-5"}, "--priority: expected a whole number from 0 to 1000, found -5"),
        ({"priority": "much"}, "--priority: expected a whole number, found 'much'"),
        ({"retry_on": "1,lots"}, "--retry-on: unknown word 'lots'; did you mean lost?"),
        ({"retry_on": ""}, "--retry-on: is empty; expected exit codes"),
        ({"lease": "4s"}, "--lease: expected a time of at least 5 s, found 4 s"),
        ({"name": "me", "depends_on": "kob,me"}, "--depends-on: 'me' is the job's own name"),
        ({"max_parallel": "0"}, "--max-parallel: expected a number of at least 1, found 0"),
    ],
)
def test_a_bad_flag_is_named(overrides: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        merge(JobFile(), overrides)
    assert says in str(caught.value)


def test_flags_of_the_scheduler_replace_and_survive_another_merge() -> None:
    flags = {"retries": "2", "retry_on": "1, TIMED-OUT,137,1", "retry_delay": "0", "depends_on": "afterok:kob:bab,zaz"}
    job = merge(merge(load(FILES / "everything.yml"), flags), {"name": "x"})
    assert (job.retries, job.retry_on, job.retry_delay) == (2, [1, "timed_out", 137], 0)
    assert [one["job"] for one in job.dependencies] == ["kob", "bab", "zaz"]
    assert merge(job, {"depends_on": ""}).dependencies == []
    assert (job.lease, job.max_parallel) == (300, 4)


def test_a_flag_may_have_another_name_and_keeps_it() -> None:
    job = merge(JobFile(), {"code.path": "src"}, {"code.path": "--code"})
    assert job.field(("code", "path")) == "--code"
    assert merge(job, {"name": "x"}).field(("code", "path")) == "--code"
    assert job.field(("data", 0, "path")) == "job.yml: data[0].path"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1h30m", 5400), ("1h 30m", 5400), ("45s", 45), ("2d", 172800), ("1.5H", 5400), (" 5 m ", 300),
     ("1-12:00:00", 129600), ("01:30:00", 5400), ("100:00:00", 360000), ("1:30", 90), ("90:00", 5400),
     ("2-6", 194400), ("2-6:30", 196200), ("0-00:00:01", 1), ("3600", 3600), ("0.5", 0.5), (60, 60), (1.5, 1.5)],
)  # fmt: skip
def test_times(text: object, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "0", 0, -1, "-5", "-1h", "h", "1x", "1m1h", "5m5m", "1:2:3:4", "1:60", "1:60:00", "1-24:00:00", "0m", True,
     None, [], float("inf"), float("nan"), "9" * 400, "1h30", "٣"],
)  # fmt: skip
def test_what_is_no_time(text: object) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "mb"),
    [("8GB", 8192), ("512MB", 512), ("2G", 2048), ("1.5g", 1536), ("16GiB", 16384), ("1T", 1048576), ("100K", 1),
     ("1025 kB", 2), ("300", 300), (300, 300), (0.5, 1), (" 4 GB ", 4096)],
)  # fmt: skip
def test_memory(text: object, mb: int) -> None:
    assert parse_memory_mb(text) == mb


@pytest.mark.parametrize(
    "text", ["", "0", 0, -1, "-2G", "8B", "8i", "8Gi b", "G", "8X", "1e3", True, None, [], float("nan"), float("inf")]
)
def test_what_is_no_memory(text: object) -> None:
    with pytest.raises(ValueError, match="expected memory"):
        parse_memory_mb(text)
