"""A wave as the playbook reads it, and a queued job as the scheduler reads it."""

from __future__ import annotations

from functools import cache
from typing import Any

from monkey.core.leases import GRACE_S
from monkey.jobs import Job, JobBook
from monkey.retrying import lease_s
from monkey.scheduler import Need, Wave, shape_of
from monkey.submit import need_of


def need(job: Job) -> Need:
    """A queued job for the scheduler. Its age is its number: clocks are stepped, numbers only grow."""
    return need_of(job, shape_of_job(job), float(job["order"]))


def shape_of_job(job: Job) -> str:
    """Key of the jobs that may share a wave with it."""
    environment = _environment(job)
    return _shape(*environment.values(), tuple(job["install"]))


@cache
def _shape(kind: str, content: str | None, image: str | None, install: tuple[str, ...]) -> str:
    # Jobs come by the thousand and shapes by the dozen.
    return shape_of({"kind": kind, "content": content, "image": image}, install)


def _environment(job: Job) -> dict[str, Any]:
    run = job["run"]
    return {"kind": run["env_type"], "content": run["env_content"], "image": run["image"]}


def wave_doc(wave: Wave, jobs: JobBook) -> dict[str, Any]:
    """Content of the wave file (docs/interfaces.md, "A wave")."""
    hosts: dict[str, Any] = {}
    first: Job | None = None
    for name, juids in wave.hosts.items():
        mine = [jobs.get(juid) for juid in juids]
        first = first or mine[0]
        hosts[name] = {
            "attempts": [attempt_spec(job) for job in mine],
            "trees": sorted({tree for job in mine for tree in _trees(job)}),
            "data_trees": sorted({item["tree"] for job in mine for item in job["data"]}),
        }
    assert first is not None
    return {"hosts": hosts, "environment": _environment(first), "install": first["install"]}


def attempt_spec(job: Job) -> dict[str, Any]:
    """An attempt as a client takes it (docs/interfaces.md, "Attempt spec")."""
    return {
        "juid": job["juid"],
        "attempt": job["attempt"],
        "name": job["name"],
        "nickname": job["nickname"],
        "command": job["command"],
        "code": job["code"]["tree"] if job["code"] else None,
        "data": job["data"],
        "persist": job["persist"],
        "env": job["env"],
        "environment": {"kind": "none"},
        "setup": job["setup"],
        "resources": job["resources"],
        "time_limit_s": job["time_limit_s"],
        "grace_s": GRACE_S,
        "lease_s": lease_s(job),
    }


def trees_of(job: Job) -> set[str]:
    """All trees that a host must have for a job."""
    return {*_trees(job), *(item["tree"] for item in job["data"])}


def _trees(job: Job) -> list[str]:
    code = [job["code"]["tree"]] if job["code"] else []
    return code + [item["tree"] for item in job["persist"] if item["tree"]]
