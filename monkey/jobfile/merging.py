"""Flags over the job file: the same model, the same messages, naming the flag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from monkey.errors import UsageProblem
from monkey.jobfile.model import JobFile, Loc
from monkey.jobfile.problems import build

# Flags are text; these keys want numbers.
_NUMBERS = frozenset({"cpus", "gpus", "retries", "priority", "max_parallel", "num_nodes", "idle_minutes"})


def merge(job: JobFile, overrides: Mapping[str, Any], flags: Mapping[str, str] | None = None) -> JobFile:
    """A job file with other values in some places.

    `overrides` goes by dotted key (`name`, `resources.cpus`, `run.env_type`); None leaves the key as it is; `env`
    (a mapping, or texts `NAME=VALUE`) is laid over what the file says, everything else replaces it. A message names
    the flag: that of `flags`, else `--` and the last part of the key (`resources.memory`: `--memory`).
    Raises UsageProblem.
    """
    raw = job.model_dump(exclude_unset=True)
    names = dict(job._flags)
    for key, value in overrides.items():
        if value is None:
            continue
        *parents, last = key.split(".")
        flag = (flags or {}).get(key) or "--" + last.replace("_", "-")
        loc: Loc = (*parents, last)
        section = raw
        for parent in parents:
            section = section.setdefault(parent, {})
        if last == "env":
            section["env"] = {**section.get("env", {}), **variables(value, flag)}
        else:
            section[last] = _number(value) if last in _NUMBERS else list(value) if isinstance(value, tuple) else value
        names[loc] = flag
    return build(raw, job._file, names)


def variables(given: Mapping[str, str] | Iterable[str], flag: str = "--env") -> dict[str, str]:
    """Variables of texts `NAME=VALUE`; the last of a name counts. Raises UsageProblem naming `flag`."""
    if isinstance(given, Mapping):
        return dict(given)
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageProblem(flag, f"expected NAME=VALUE, found {text[:80]!r}")
        found[name] = value
    return found


def _number(value: object) -> object:
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
