"""The one definition of `job.yml`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from monkey.jobfile import trying
from monkey.jobfile.values import (
    Command,
    DependsOn,
    Lease,
    Megabytes,
    Name,
    Priority,
    RelativePath,
    Retries,
    RetryDelay,
    RetryOn,
    Seconds,
    Variables,
)

Loc = tuple[str | int, ...]

# What the original's file calls an environment file when it names none.
_ENV_FILES = {"pip": "requirements.txt", "conda": "environment.yml", "docker": "Dockerfile"}


def place_name(loc: Loc, file: str, flags: Mapping[Loc, str]) -> str:
    """A place as people write it: the flag that it came from, else `job.yml: data[0].type`."""
    for n in range(len(loc), 0, -1):
        if loc[:n] in flags:
            return flags[loc[:n]]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"{file}: {text.removeprefix('.')}" if loc else file


class _Section(BaseModel):
    # What cannot be read back exactly is refused: no number where text is wanted.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        kept = {}
        for key, item in value.items():
            if item is None and key in cls.model_fields:
                continue
            # An empty list item is absent too, but never an argument of a command.
            kept[key] = [x for x in item if x is not None] if isinstance(item, list) and key != "command" else item
        return kept


class Run(_Section):
    """How the command is surrounded (the original's section)."""

    env_type: Literal["none", "pip", "conda", "docker"] = Field(default="none", description="Kind of environment")
    env_file: str | None = Field(
        default=None, min_length=1, description="requirements.txt, environment.yml or Dockerfile"
    )
    image: str | None = Field(default=None, min_length=1, description="Image for env_type docker")
    env: Variables = Field(default={}, description="Environment variables")
    terminate: bool | None = Field(
        default=None, description="Whether the instance goes when the job ends (cloud providers)"
    )
    install_script: RelativePath | None = Field(
        default=None, description="Script of the code, run before the setup lines"
    )


class Code(_Section):
    """What is sent as code."""

    path: RelativePath = Field(default=".", description="Folder, relative to this file")
    ignore: list[str] = Field(default=[], description="Patterns in .gitignore's language")


class PersistItem(_Section):
    """A folder that comes back; a text alone is its path."""

    name: Name
    path: RelativePath
    ignore: list[str] = Field(default=[], description="Patterns in .gitignore's language")

    @model_validator(mode="before")
    @classmethod
    def _name_or_path(cls, value: object) -> object:
        item = {"path": value} if isinstance(value, str) else value
        if not isinstance(item, dict):
            raise ValueError("expected a path, or name and path")
        item = {key: part for key, part in item.items() if part is not None}
        if "path" not in item and "name" in item:
            item["path"] = item["name"]
        if not item:
            raise ValueError("expected a path, or name and path")
        if "name" not in item and isinstance(item.get("path"), str):
            path = item["path"].removeprefix("./").strip("/")
            item["name"] = re.sub(r"[^A-Za-z0-9._-]+", "-", path, flags=re.ASCII)[-64:] or "output"
        return item


class DataItem(_Section):
    """A data set: sent once per host, seen at `path`."""

    name: Name
    path: RelativePath = Field(description="Folder, relative to this file")
    type: Literal["copy", "mount"] = "copy"
    compression: Literal["tar", "gztar"] | None = None


class Resources(_Section):
    """What one job needs of a host."""

    cpus: float | None = Field(default=None, gt=0)
    gpus: int | None = Field(default=None, ge=0)
    memory: Megabytes | None = Field(default=None, description="8GB, 512MB; a bare number is MB")


class PhaseLimits(_Section):
    """How long each part of a job's way may take; without a limit only Monkey's own long deadlines hold."""

    queued: Seconds | None = Field(default=None, description="Waiting in the queue; afterwards TIMED_OUT")
    machine: Seconds | None = Field(default=None, description="Making the machine ready, sending code and data")
    installs: Seconds | None = Field(default=None, description="Roles under install, and the environment")
    setup: Seconds | None = Field(default=None, description="Setup lines")
    cleanup: Seconds | None = Field(default=None, description="Bringing the results back")


class ProviderItem(_Section):
    """Wishes for a machine of one provider."""

    name: Name
    machine_type: str | None = None
    disk_size: int | str | None = Field(default=None, description="GB")
    disk_size_gb: int | None = Field(default=None, gt=0)
    disk_type: str | None = None
    base_image: str | None = None
    source_image: str | None = None
    spot: bool | None = None
    spot_price: float | str | None = None
    preemptible: bool | None = None


class JobFile(_Section):
    """How a command started in this folder is run. Every key is optional."""

    name: Name | None = Field(default=None, description="Shown in lists")
    project_name: Name | None = None
    command: Command | None = Field(default=None, description="Text, split as a shell would, or a list")
    run: Run = Run()
    install: list[Literal["conda", "docker", "cuda10.2", "cuda11.1", "nvidia-docker", "pytorch"]] = Field(
        default=[], description="Roles run before the environment is built"
    )
    setup: list[str] = Field(default=[], description="Shell lines run before the command")
    code: Code = Code()
    data: list[DataItem] = []
    persist: list[PersistItem] = []
    providers: list[ProviderItem] = []
    resources: Resources = Resources()
    image: str | None = Field(default=None, min_length=1, description="Image for env_type docker")
    env: Variables = Field(default={}, description="Environment variables")
    secrets: list[Any] | dict[str, Any] = []
    time_limit: Seconds | None = Field(default=None, description="90m, 1h30m, 1-12:00:00; a bare number is seconds")
    priority: Priority = Field(default=trying.DEFAULT_PRIORITY, description="0 to 1000; higher goes first")
    retries: Retries = Field(default=0, description="Further attempts after the first")
    retry_on: RetryOn | None = Field(
        default=None,
        description="Exit codes, and failed, setup, timed_out, preempted, lost; without it failed, preempted and lost",
    )
    retry_delay: RetryDelay = Field(
        default=trying.DEFAULT_RETRY_DELAY_S,
        description="Pause before the first retry, doubled each time, at most 10 minutes",
    )
    lease: Lease | None = Field(
        default=None,
        description="The host ends an attempt that the main node has not renewed for this long; at least 5 s",
    )
    phase_limits: PhaseLimits = PhaseLimits()
    depends_on: DependsOn = Field(
        default=[], description="Jobs that come first: ID or afterok:ID (after success), afterany:ID (after its end)"
    )
    queue: Name | None = Field(default=None, description="Jobs of one queue share max_parallel; the job's own name")
    max_parallel: int | None = Field(
        default=None, ge=1, description="Starts only while fewer jobs of its queue than this are out"
    )
    num_nodes: int = Field(default=1, ge=1)
    idle_minutes: float | None = Field(default=None, ge=0, description="After this an idle instance is shut down")

    _file: str = PrivateAttr("job.yml")
    _flags: dict[Loc, str] = PrivateAttr({})

    @field_validator("data", "persist", "providers")
    @classmethod
    def _names_once(cls, items: list[Any]) -> list[Any]:
        names = [item.name for item in items]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two items are named {name!r}; expected each name once")
        return items

    @model_validator(mode="after")
    def _one_image(self) -> JobFile:
        if self.image and self.run.image and self.image != self.run.image:
            raise ValueError("image and run.image differ; expected one of them")
        return self

    def field(self, loc: Loc) -> str:
        """How a place is named in messages: its flag when it came from one, else `job.yml: data[0].path`."""
        return place_name(loc, self._file, self._flags)

    @property
    def docker_image(self) -> str | None:
        """The image, from either of its places."""
        return self.run.image or self.image

    @property
    def environment_file(self) -> str | None:
        """The file that the environment is made from, relative to the job file; None when it needs none."""
        kind = self.run.env_type
        if kind == "none" or (kind == "docker" and self.docker_image):
            return None
        return self.run.env_file or _ENV_FILES[kind]

    @property
    def variables(self) -> dict[str, str]:
        """`run.env` with `env` over it."""
        return {**self.run.env, **self.env}

    @property
    def setup_lines(self) -> list[str]:
        """The shell lines before the command, `run.install_script` as the first."""
        if self.run.install_script is None:
            return list(self.setup)
        script = shlex.quote("./" + self.run.install_script)
        return [f"if command -v bash >/dev/null; then bash {script}; else sh {script}; fi", *self.setup]

    @property
    def time_limit_s(self) -> float | None:
        """The time limit in seconds."""
        return self.time_limit

    @property
    def phase_limits_s(self) -> dict[str, float]:
        """The limits of phases in seconds, those that are given."""
        return self.phase_limits.model_dump(exclude_none=True)

    @property
    def dependencies(self) -> list[dict[str, str]]:
        """`[{"job", "when"}]`: what must have ended before, by success or at all."""
        return trying.dependencies(self.depends_on)

    @property
    def memory_mb(self) -> int | None:
        """The memory asked for in megabytes."""
        return self.resources.memory
