"""Bodies that the API takes. One definition: OpenAPI's page is made from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, model_validator
from pydantic_core import PydanticCustomError

from monkey.jobfile import trying
from monkey.names import did_you_mean

TREE = r"^[0-9a-f]{64}$"
NAME = r"^[A-Za-z0-9._-]{1,64}$"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _checked(check: Callable[[Any], Any]) -> AfterValidator:
    """A rule of the house as a validator whose message stands as it is."""

    def told(value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise PydanticCustomError("house_rule", "{text}", {"text": str(error)}) from None

    return AfterValidator(told)


def _phase_limits(value: dict[str, float]) -> dict[str, float]:
    for phase, limit_s in value.items():
        if phase not in trying.PHASES:
            known = did_you_mean(phase, trying.PHASES) or f"; expected one of {', '.join(trying.PHASES)}"
            raise ValueError(f"unknown phase {phase[:60]!r}{known}")
        if not limit_s > 0:
            raise ValueError(f"{phase}: expected a time above 0 s, found {limit_s:g} s")
    return value


def _at_least_one(value: int) -> int:
    if value < 1:
        raise ValueError(f"expected a number of at least 1, found {value}")
    return value


Priority = Annotated[StrictInt, _checked(lambda n: trying.check_range(n, trying.PRIORITY))]
Retries = Annotated[StrictInt, _checked(lambda n: trying.check_range(n, trying.RETRIES))]
RetryOn = Annotated[list[int | str], _checked(trying.check_retry_on)]
RetryDelay = Annotated[float, _checked(lambda s: trying.check_seconds(s, 0.0, trying.LONGEST_RETRY_DELAY_S))]
Lease = Annotated[float, _checked(lambda s: trying.check_seconds(s, trying.SHORTEST_LEASE_S))]
PhaseLimits = Annotated[dict[str, float], _checked(_phase_limits)]
MaxParallel = Annotated[StrictInt, _checked(_at_least_one)]


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


class Dependency(_Body):
    """A job that must have ended first: by JUID, nickname or name."""

    job: str = Field(pattern=NAME)
    when: Literal["success", "end"] = "success"


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
    priority: Priority = trying.DEFAULT_PRIORITY
    retries: Retries = 0
    retry_on: RetryOn | None = None
    retry_delay_s: RetryDelay = trying.DEFAULT_RETRY_DELAY_S
    lease_s: Lease | None = None
    phase_limits_s: PhaseLimits = {}
    depends_on: list[Dependency] = []
    queue: str | None = Field(default=None, pattern=NAME)
    max_parallel: MaxParallel | None = None
    code: Code | None = None
    data: list[DataItem] = []
    persist: list[PersistItem] = []


class PlanBody(Submission):
    """A submission that is only asked about, with the blobs (sha256 to bytes) that it would bring."""

    blobs: dict[str, int] = {}


class JobChange(_Body):
    """What of a queued job becomes different: the fields that were given (`model_fields_set`)."""

    priority: Priority | None = None
    depends_on: list[Dependency] | None = None
    max_parallel: MaxParallel | None = None

    @model_validator(mode="after")
    def _something(self) -> JobChange:
        if not self.model_fields_set:
            raise PydanticCustomError("house_rule", "expected priority, depends_on or max_parallel")
        return self


class RerunBody(_Body):
    """Which jobs are run again: all that failed, or those of a provider or a name among them."""

    failed: Literal[True]
    provider: str | None = None
    name: str | None = None


class PolicyBody(_Body):
    """The policy that the scheduler is to follow."""

    policy: str


class DrainBody(_Body):
    """Why a host gets no further jobs."""

    reason: str = Field(default="", max_length=500)


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
