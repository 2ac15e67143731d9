"""From a submission to a job's record: what the API checks before it acknowledges a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS

from monkey.api.models import Dependency, Submission
from monkey.errors import UsageProblem
from monkey.jobs import JobBook
from monkey.names import check_name, did_you_mean
from monkey.providers import Provider, ProviderBook
from monkey.scheduler import HostView, Need

# A job that is run again waits for nobody: what it needed has ended.
_TRYING = ("retries", "retry_on", "retry_delay_s", "lease_s", "phase_limits_s", "queue", "max_parallel")
_KEPT_ENV = ("MONKEY_", "CUDA_VISIBLE_DEVICES")


def provider_for(submission: Submission, book: ProviderBook) -> Provider:
    """The provider and, when asked for, the host of a submission.

    Raises:
        UsageProblem: one of them is not known.
    """
    provider = book.get(submission.provider)
    names = [host.name for host in provider.hosts()]
    if submission.instance is not None and submission.instance not in names:
        hint = did_you_mean(submission.instance, names) or f"; it has {', '.join(names) or 'none'}"
        raise UsageProblem("instance", f"provider {provider.name} has no host {submission.instance!r}{hint}")
    return provider


def fields_of(submission: Submission, fs: MonkeyFS, jobs: JobBook) -> dict[str, Any]:
    """Fields of the record of a new job.

    Raises:
        UsageProblem: code or data are not in monkeyfs, a name or variable cannot be used, or a job it needs is unknown.
    """
    for item in submission.data:
        _has(fs, item.tree, f"data.{item.name}")
    for name in submission.env:
        if not name or "=" in name or "\0" in name or not name.isascii():
            raise UsageProblem("env", f"{name!r} is not a name of a variable")
        if name.startswith(_KEPT_ENV):
            raise UsageProblem("env", f"{name} is set by Monkey itself")
    if any("\0" in text for text in (*submission.command, *submission.env.values())):
        raise UsageProblem("command", "an argument or variable cannot hold a zero byte")
    code = None
    if submission.code:
        files, size_bytes = _has(fs, submission.code.tree, "code")
        code = {**submission.code.model_dump(), "files": files, "size_bytes": size_bytes}
    name = check_name(submission.name or default_name(submission.command), "name")
    if any(item.job == name for item in submission.depends_on) and submission.name == name:
        raise UsageProblem("depends_on", f"{name} is this job itself; expected other jobs")
    return {
        "name": name,
        "project": submission.project,
        "provider": submission.provider,
        "instance": submission.instance,
        "command": submission.command,
        "run": submission.run.model_dump(),
        "install": submission.install,
        "setup": submission.setup,
        "env": submission.env,
        "resources": submission.resources.model_dump(),
        "time_limit_s": submission.time_limit_s,
        "priority": submission.priority,
        "retries": submission.retries,
        "retry_on": submission.retry_on,
        "retry_delay_s": submission.retry_delay_s,
        "lease_s": submission.lease_s,
        "phase_limits_s": dict(submission.phase_limits_s),
        "depends_on": dependencies(submission.depends_on, jobs, None),
        "queue": submission.queue or (name if submission.max_parallel else None),
        "max_parallel": submission.max_parallel,
        "code": code,
        "data": [item.model_dump() for item in submission.data],
        "persist": [{**item.model_dump(), "tree": None} for item in submission.persist],
    }


def dependencies(asked: Iterable[Dependency], jobs: JobBook, juid: str | None) -> list[dict[str, str]]:
    """Jobs that a job is to wait for, by JUID.

    Args:
        asked: JUIDs, nicknames or names (of which the newest job counts).
        jobs: the jobs.
        juid: the job that is to wait, or None when it is being made.

    Raises:
        UsageProblem: one of them is unknown, the job itself, or waits for the job.
    """
    found = {}
    for item in asked:
        parent = jobs.named(item.job)
        if parent is None:
            raise UsageProblem("depends_on", f"no job {item.job!r}; `monkey list jobs` shows those there are")
        if parent["juid"] == juid:
            raise UsageProblem("depends_on", f"{item.job} is this job itself; expected other jobs")
        way = _way(parent["juid"], juid, jobs) if juid else None
        if way:
            raise UsageProblem("depends_on", f"that is a circle: {' needs '.join([str(juid), *way])}")
        found[parent["juid"]] = {"job": parent["juid"], "when": item.when}
    return list(found.values())


def _way(start: str, goal: str, jobs: JobBook) -> list[str] | None:
    """JUIDs from a job to one that it needs, directly or not; None when it does not."""
    ways = [[start]]
    seen = {start}
    while ways:
        way = ways.pop()
        job = jobs.known(way[-1])
        for item in job["depends_on"] if job else ():
            if item["job"] == goal:
                return [*way, goal]
            if item["job"] not in seen:
                seen.add(item["job"])
                ways.append([*way, item["job"]])
    return None


def submission_of(job: dict[str, Any]) -> Submission:
    """The submission that makes exactly the same job again: all of it is in the record and in monkeyfs."""
    code = job["code"] and {key: job["code"][key] for key in ("tree", "path", "git")}
    keys = ("command", "name", "project", "provider", "instance", "run", "install", "setup", "env", "resources")
    return Submission.model_validate(
        {
            **{key: job[key] for key in (*keys, *_TRYING, "time_limit_s", "priority", "data")},
            "code": code,
            "persist": [{"name": item["name"], "path": item["path"]} for item in job["persist"]],
        }
    )


def default_name(command: list[str]) -> str:
    """A name for a job that was given none: its script or program."""
    words = [word.rsplit("/", 1)[-1] for word in command if word and not word.startswith("-")]
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "job")
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in script.rsplit(".", 1)[0])[:64]
    return kept.strip(".-") or "job"


def need_of(job: dict[str, Any], shape: str, queued_at: float) -> Need:
    """What a queued job asks for, for the scheduler."""
    resources = job["resources"]
    return Need(
        juid=job["juid"],
        provider=job["provider"],
        instance=job["instance"],
        cpus=resources["cpus"],
        gpus=resources["gpus"],
        memory_mb=resources["memory_mb"],
        priority=job["priority"],
        queued_at=queued_at,
        shape=shape,
        group=job["queue"],
        max_parallel=job["max_parallel"],
    )


def check_fits(need: Need, hosts: list[HostView]) -> None:
    """Refuse what no host of the provider could ever meet, naming the largest there is.

    Raises:
        UsageProblem: all hosts are known and none is large enough.
    """
    mine = [h for h in hosts if h.provider == need.provider and need.instance in (None, h.name)]
    if not mine or any(h.could_ever(need) for h in mine):
        return
    for field, asked, have in (
        ("gpus", need.gpus, [h.gpus or 0 for h in mine]),
        ("cpus", need.cpus, [h.cpus or 0 for h in mine]),
        ("memory", need.memory_mb or 0, [h.memory_mb or 0 for h in mine]),
    ):
        if asked > max(have):
            unit = " MB" if field == "memory" else ""
            largest = f"the largest host of provider {need.provider} has {max(have):g}{unit}"
            raise UsageProblem(f"resources.{field}", f"{asked:g}{unit} asked for, {largest}")
    raise UsageProblem("resources", f"no host of provider {need.provider} has all of what is asked for together")


def _has(fs: MonkeyFS, tree: str, field: str) -> tuple[int, int]:
    if not fs.has_tree(tree):
        raise UsageProblem(field, f"tree {tree[:12]} is not in monkeyfs; send it first")
    return trees.summary(fs.get_tree(tree))
