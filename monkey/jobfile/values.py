"""Kinds of values in `job.yml`: how each is read, what it must be, and how an editor's schema says so."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from ansible_collections.monkey.runner.plugins.module_utils.units import parse_duration_s, parse_memory_mb
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from monkey.errors import UsageProblem
from monkey.jobfile import trying
from monkey.jobfile.pathrules import relative_path
from monkey.names import NAME_PATTERN, check_name

_VARIABLE = re.compile(r"[^=\0\s]+", re.ASCII)


def _name(value: str) -> str:
    try:
        return check_name(value, "")
    except UsageProblem as problem:
        raise ValueError(problem.message) from None


def _variables(value: object) -> object:
    """A mapping, or the original's list of mappings, as one mapping."""
    if isinstance(value, list):
        merged: dict[object, object] = {}
        for item in value:
            if not isinstance(item, dict):
                raise ValueError("expected a list of NAME: VALUE")
            merged.update(item)
        return merged
    return value


def _check_variables(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a variable")
        if "\0" in text:
            raise ValueError(f"{name} holds a zero byte, which no variable can")
    return value


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"cannot be split as a shell would: {str(error).lower()}") from None


def _check_command(value: list[str]) -> list[str]:
    if not value or not value[0]:
        raise ValueError("expected a command")
    if any("\0" in word for word in value):
        raise ValueError("an argument cannot hold a zero byte")
    return value


def _listed(value: object) -> object:
    """A text with commas, as flags are, or a single value, as a list."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) else value


def _retry_on(value: object) -> object:
    return trying.check_retry_on(value) if isinstance(value, list) else value


def _depends_on(value: list[str]) -> list[str]:
    trying.dependencies(value)
    return value


def _retry_delay(value: object) -> float:
    # At once is a pause too, though it is no amount of time.
    none = value in ("0", 0) and not isinstance(value, bool)
    return trying.check_seconds(0.0 if none else parse_duration_s(value), 0.0, trying.LONGEST_RETRY_DELAY_S)


def _lease(value: object) -> float:
    return trying.check_seconds(parse_duration_s(value), trying.SHORTEST_LEASE_S)


def _ranged(allowed: range) -> AfterValidator:
    return AfterValidator(lambda value: trying.check_range(value, allowed))


_SCALAR = {"type": ["string", "number", "boolean"]}
_MAPPING = {"type": "object", "additionalProperties": _SCALAR}

Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{NAME_PATTERN}$"})]
RelativePath = Annotated[str, AfterValidator(relative_path)]
Variables = Annotated[
    dict[str, str],
    BeforeValidator(_variables),
    AfterValidator(_check_variables),
    WithJsonSchema({"anyOf": [_MAPPING, {"type": "array", "items": _MAPPING}]}),
]
Command = Annotated[
    list[str],
    BeforeValidator(_words),
    AfterValidator(_check_command),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _SCALAR, "minItems": 1}]}),
]
Seconds = Annotated[float, BeforeValidator(parse_duration_s), WithJsonSchema({"type": ["string", "number"]})]
RetryDelay = Annotated[float, BeforeValidator(_retry_delay), WithJsonSchema({"type": ["string", "number"]})]
Lease = Annotated[float, BeforeValidator(_lease), WithJsonSchema({"type": ["string", "number"]})]
_RETRY_ITEM = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 255}, {"enum": list(trying.RETRY_WORDS)}]}
RetryOn = Annotated[
    list[int | str],
    BeforeValidator(_retry_on),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "array", "items": _RETRY_ITEM, "minItems": 1}, *_RETRY_ITEM["anyOf"]]}),
]
DependsOn = Annotated[
    list[str],
    AfterValidator(_depends_on),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
]
Priority = Annotated[int, _ranged(trying.PRIORITY), Field(json_schema_extra={"minimum": 0, "maximum": 1000})]
Retries = Annotated[int, _ranged(trying.RETRIES), Field(json_schema_extra={"minimum": 0, "maximum": 100})]
Megabytes = Annotated[int, BeforeValidator(parse_memory_mb), WithJsonSchema({"type": ["string", "number"]})]
