"""Bodies that the API takes. One definition: OpenAPI's page is made from it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

TREE = r"^[0-9a-f]{64}$"
NAME = r"^[A-Za-z0-9._-]{1,64}$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunPart(_Body):
    """Environment that the command runs in."""

    env_type: Literal["none", "pip", "conda", "docker"] = "none"
    env_file: str | None = None
    env_content: str | None = None
    image: str | None = None


class Resources(_Body):
    """What a job asks for of a host."""

    cpus: float = Field(default=1.0, gt=0)
    gpus: int = Field(default=0, ge=0)
    memory_mb: int | None = Field(default=None, gt=0)


class Git(_Body):
    """Where the code stood when it was taken in."""

    commit: str
    branch: str | None = None
    dirty: bool


class Code(_Body):
    """Code of a job: a tree in monkeyfs."""

    tree: str = Field(pattern=TREE)
    path: str
    git: Git | None = None


class DataItem(_Body):
    """A data set of a job, seen by it at ``path`` of its work folder."""

    name: str = Field(pattern=NAME)
    path: str
    tree: str = Field(pattern=TREE)


class PersistItem(_Body):
    """A folder of the work folder that is kept."""

    name: str = Field(pattern=NAME)
    path: str


class Submission(_Body):
    """A job as it is handed in. Code and data must be in monkeyfs already."""

    command: list[str] = Field(min_length=1)
    name: str | None = Field(default=None, pattern=NAME)
    project: str | None = None
    provider: str = "local"
    instance: str | None = None
    run: RunPart = RunPart()
    install: list[str] = []
    setup: list[str] = []
    env: dict[str, str] = {}
    resources: Resources = Resources()
    time_limit_s: float | None = Field(default=None, gt=0)
    priority: int = 0
    code: Code | None = None
    data: list[DataItem] = []
    persist: list[PersistItem] = []


class PlanBody(Submission):
    """A submission that is only asked about, with the blobs (sha256 to bytes) that it would bring."""

    blobs: dict[str, int] = {}


class Hashes(_Body):
    """Blobs by sha256."""

    sha256: list[str]


class ProbeBody(_Body):
    """Hosts whose keys are asked for."""

    hosts: list[str]
    key_file: str | None = None
    ssh_config: str | None = None


class HostBody(_Body):
    """A host to add, with the fingerprint that was confirmed."""

    host: str
    fingerprint: str | None = None


class ProviderBody(_Body):
    """A provider to add."""

    name: str
    type: str
    hosts: list[HostBody] = []
    key_file: str | None = None
    ssh_config: str | None = None
    slots: int | None = Field(default=None, gt=0)
