"""From a folder and a command to what is sent: a submission, and the files that monkeyfs lacks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs, trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.errors import MonkeyFSError
from ansible_collections.monkey.runner.plugins.module_utils.snapshot import Snapshot, snapshot

from monkey.apiclient import Api, Json
from monkey.errors import UsageProblem
from monkey.gitinfo import git_info
from monkey.jobfile import JobFile, check_paths, load, merge
from monkey.paths import Home

JOB_FILE = "job.yml"
_SAME_IN_BOTH = ("priority", "retries", "retry_on", "retry_delay", "lease", "depends_on", "queue", "max_parallel")
# An environment file is text that a person wrote; this is far beyond any.
_ENV_FILE_BYTES = 4 << 20


@dataclass(frozen=True)
class Flags:
    """What a command line or a script says beside the job file; None leaves the job file's value.

    Times and `memory` in the job file's own words (`1h30m`, `16G`) or as numbers (seconds, MB); `retry_on` and
    `depends_on` as lists, or texts with commas.
    """

    provider: str | None = None
    instance: str | None = None
    job_file: str | os.PathLike[str] | None = None
    name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    time_limit: str | float | None = None
    cpus: str | float | None = None
    gpus: str | int | None = None
    memory: str | int | None = None
    priority: str | int | None = None
    retries: str | int | None = None
    retry_on: str | Sequence[str | int] | None = None
    retry_delay: str | float | None = None
    lease: str | float | None = None
    depends_on: str | Sequence[str] | None = None
    queue: str | None = None
    max_parallel: str | int | None = None


@dataclass(frozen=True)
class Prepared:
    """A submission and the trees and files that belong to it."""

    submission: Json
    trees: dict[str, Json]
    paths: dict[str, str]
    sizes: dict[str, int]
    files: int
    size_bytes: int


def prepare(home: Home, folder: Path | None, command: list[str], flags: Flags) -> Prepared:
    """Reads job file, code and data, and makes the submission; nothing is sent and nothing changed.

    Args:
        home: keeps what is known of files, so that only changed ones are read again.
        folder: where the command was given; None: the working folder. Code and data are those beside the job file.
        command: empty: `command` of the job file.
        flags: laid over the job file.

    Raises:
        UsageProblem: naming what cannot be used, and what was expected.
    """
    job, place = _job(folder or Path(), command, flags)
    if not job.command:
        raise UsageProblem("command", f"no command; expected `monkey run COMMAND…` or `command` in {JOB_FILE}")
    check_paths(job, place)
    left_out = [*_left_out(job), *_own_folder(home, place / job.code.path)]
    code = _snapshot(home, place / job.code.path, left_out, "code")
    # A data set is named to be sent: it is often just what .gitignore keeps out of the repository.
    data = [(item, _snapshot(home, place / item.path, [], f"data {item.name}", False)) for item in job.data]
    taken = [code, *(one for _, one in data)]
    submission = {
        "command": list(job.command),
        "name": job.name,
        "project": job.project_name,
        "provider": _provider(job, flags),
        "instance": flags.instance,
        "run": _run(job, place),
        "install": list(job.install),
        "setup": job.setup_lines,
        "env": job.variables,
        "resources": _given(cpus=job.resources.cpus, gpus=job.resources.gpus, memory_mb=job.memory_mb),
        "time_limit_s": job.time_limit_s,
        **_scheduling(job),
        "code": {"tree": code.id, "path": job.code.path, "git": git_info(place / job.code.path)},
        "data": [{"name": item.name, "path": item.path, "tree": one.id} for item, one in data],
        "persist": [{"name": item.name, "path": item.path} for item in job.persist],
    }
    sizes: dict[str, int] = {}
    paths: dict[str, str] = {}
    for one in taken:
        sizes.update(trees.blobs_of(one.tree))
        paths.update(one.paths)
    return Prepared(
        submission=_given(**submission),
        trees={one.id: one.tree for one in taken},
        paths=paths,
        sizes=sizes,
        files=sum(one.files for one in taken),
        size_bytes=sum(one.size_bytes for one in taken),
    )


def missing(api: Api, prepared: Prepared) -> dict[str, int]:
    """{sha256: bytes} of what monkeyfs lacks."""
    return {sha: prepared.sizes[sha] for sha in api.missing(list(prepared.sizes))}


def send(api: Api, prepared: Prepared, sent: Callable[[int], None] = lambda _count: None) -> tuple[int, int]:
    """Sends what monkeyfs lacks: (files, bytes). Goes on where it stood when the core goes away meanwhile.

    Args:
        api: the core.
        prepared: what `prepare` made.
        sent: told the number of bytes as they go out.

    Raises:
        UsageProblem: a file changed since it was read, or the main node's disk is full.
    """
    total = [0, 0]

    def once() -> None:
        lacking = missing(api, prepared)
        if lacking:
            try:
                api.put_pack(lambda out: packs.write(prepared.paths, lacking, _Counting(out, sent)))  # type: ignore[arg-type]
            except MonkeyFSError as error:
                raise UsageProblem("code", f"{error}: it changed while it was sent; run again") from error
            except OSError as error:
                raise UsageProblem("code", f"{error.filename}: {error.strerror}; expected a file that stays") from error
            total[0] += len(lacking)
            total[1] += sum(lacking.values())
        for tree_id, tree in prepared.trees.items():
            api.put_tree(tree_id, tree)

    api.again(once)
    return total[0], total[1]


class _Counting:
    """A file that tells how much was written."""

    def __init__(self, out: BinaryIO, told: Callable[[int], None]) -> None:
        self._out = out
        self._told = told

    def write(self, data: bytes) -> int:
        self._told(len(data))
        return self._out.write(data)


def _job(folder: Path, command: list[str], flags: Flags) -> tuple[JobFile, Path]:
    """The job file with the flags over it, and the folder that its paths start from."""
    path = folder / (JOB_FILE if flags.job_file is None else flags.job_file)
    if not folder.is_dir():
        raise UsageProblem(str(folder), "no such folder; expected the folder of the code")
    job = load(path) if flags.job_file is not None or os.path.lexists(path) else JobFile()
    overrides: dict[str, Any] = {
        "command": command or None,
        "name": flags.name,
        "env": dict(flags.env) or None,
        "time_limit": flags.time_limit,
        "resources.cpus": flags.cpus,
        "resources.gpus": flags.gpus,
        "resources.memory": flags.memory,
        **{key: getattr(flags, key) for key in _SAME_IN_BOTH},
    }
    return merge(job, overrides, {"command": "command"}), path.parent


def _scheduling(job: JobFile) -> Json:
    """What the scheduler is to know; what nobody gave is left out, so that its default stays in one place."""
    given: dict[str, tuple[str, Any]] = {
        "priority": ("priority", job.priority),
        "retries": ("retries", job.retries),
        "retry_on": ("retry_on", job.retry_on),
        "retry_delay": ("retry_delay_s", job.retry_delay),
        "lease": ("lease_s", job.lease),
        "phase_limits": ("phase_limits_s", job.phase_limits_s),
        "depends_on": ("depends_on", job.dependencies),
        "queue": ("queue", job.queue),
        "max_parallel": ("max_parallel", job.max_parallel),
    }
    return dict(field for key, field in given.items() if key in job.model_fields_set)


def _provider(job: JobFile, flags: Flags) -> str:
    for flag, value in (("--provider", flags.provider), ("--instance", flags.instance)):
        if value == "":
            raise UsageProblem(flag, "is empty; expected a name")
    if flags.provider is not None:
        return flags.provider
    return job.providers[0].name if job.providers else "local"


def _given(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _own_folder(home: Home, code: Path) -> list[str]:
    """Monkey's own record is not code, wherever it lies."""
    beneath = os.path.relpath(home.root.resolve(), code.resolve())
    return [] if beneath.startswith("..") else ["/" + _literal(beneath)]


def _left_out(job: JobFile) -> list[str]:
    """`code.ignore`, and the folders that go another way: data sets and persisted folders."""
    patterns = list(job.code.ignore)
    for path in [*(item.path for item in job.data), *(item.path for item in job.persist)]:
        beneath = os.path.relpath(path, job.code.path)
        if beneath != "." and not beneath.startswith(".."):
            patterns.append("/" + _literal(beneath))
    return patterns


def _literal(path: str) -> str:
    """A path as a pattern that matches it and nothing else: gitignore(5)."""
    return "".join("\\" + c if c in "\\*?[]!# " else c for c in path)


def _run(job: JobFile, place: Path) -> Json:
    content = None
    if job.environment_file is not None:
        path = place / job.environment_file
        try:
            if path.stat().st_size > _ENV_FILE_BYTES:
                raise UsageProblem("run.env_file", f"{job.environment_file} is larger than 4 MB; expected a text file")
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageProblem("run.env_file", f"{job.environment_file} is not UTF-8; expected a text file") from error
        except OSError as error:
            kind = job.run.env_type
            raise UsageProblem(
                "run.env_file", f"{job.environment_file}: {error.strerror}; expected the file of the {kind} environment"
            ) from error
    return _given(
        env_type=job.run.env_type, env_file=job.environment_file, env_content=content, image=job.docker_image
    )


def _snapshot(home: Home, folder: Path, ignore: list[str], what: str, gitignore: bool = True) -> Snapshot:
    top = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are written
    cache = None
    if home.root.is_dir():
        # Losing it costs time only; one per folder and set of patterns.
        key = hashlib.sha256("\0".join([top, *ignore]).encode("utf-8", "surrogateescape")).hexdigest()
        cache = home.root / "cache" / "snapshots" / f"{key[:32]}.json"
    try:
        return snapshot(top, ignore, gitignore, cache_file=cache)
    except MonkeyFSError as error:
        raise UsageProblem(what, str(error)) from error
