"""What an attempt spec may say (docs/interfaces.md, "Attempt spec")."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Tuple

from .files import ClientError

# The design's rule for names; a leading dot or dash would make a hidden file or look like an option.
_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_KINDS = ("none", "pip", "conda", "docker")
_KEYS = (
    *("juid", "attempt", "name", "nickname", "command", "code", "data", "persist", "env", "environment", "setup"),
    *("resources", "time_limit_s", "grace_s", "log_quota_mb", "lease_s"),
)


def check_key(juid: Any, attempt: Any) -> Tuple[str, int]:
    """A job's id and the number of its attempt, checked. Raises ClientError."""
    if not isinstance(juid, str) or not _NAME.match(juid):
        raise ClientError(f"juid: expected a name of letters, digits, '.', '_' and '-', got {juid!r}")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        raise ClientError(f"attempt of {juid}: expected a whole number from 1, got {attempt!r}")
    return juid, attempt


def _fail(field: str, expected: str, value: Any) -> ClientError:
    shown = repr(value)
    return ClientError(f"{field}: expected {expected}, got {shown if len(shown) < 100 else shown[:100] + '…'}")


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _fail(field, "text without NUL", value)
    return value


def _number(field: str, value: Any, least: float, above: bool = False) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not (value > least if above else value >= least) or value == float("inf"):
        raise _fail(field, f"a number {'above' if above else 'of at least'} {least:g}", value)
    return float(value)


def amount(field: str, value: Any) -> float:
    """A number of at least 0. Raises ClientError."""
    return _number(field, value, 0)


def _whole(field: str, value: Any, least: int) -> int:
    if _number(field, value, least) != int(value):
        raise _fail(field, "a whole number", value)
    return int(value)


def _list(field: str, value: Any, check: Callable[[str, Any], Any]) -> List[Any]:
    if not isinstance(value, list):
        raise _fail(field, "a list", value)
    return [check(f"{field}[{index}]", item) for index, item in enumerate(value)]


def _mapping(field: str, value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise _fail(field, "a mapping", value)
    return value


def _tree(field: str, value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.match(value):
        raise _fail(field, "a tree id (sha256)", value)
    return value


def relative_path(field: str, value: Any) -> str:
    """A path below the work folder: relative, no '.', '..' or empty part. Raises ClientError."""
    path = _text(field, value).rstrip("/")
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise _fail(field, "a path below the work folder", value)
    return path


def _item(field: str, value: Any, tree_needed: bool) -> Dict[str, Any]:
    item = _mapping(field, value)
    path = relative_path(f"{field}.path", item.get("path"))
    tree = item.get("tree")
    return {
        "name": _text(f"{field}.name", item.get("name") or path),
        "path": path,
        "tree": _tree(f"{field}.tree", tree) if tree is not None or tree_needed else None,
    }


def _environment(value: Any) -> Dict[str, Any]:
    given = _mapping("environment", value)
    kind = given.get("kind", "none")
    if kind not in _KINDS:
        raise _fail("environment.kind", "one of " + ", ".join(_KINDS), kind)
    result: Dict[str, Any] = {"kind": kind}
    if kind in ("pip", "conda"):
        result["path"] = _text("environment.path", given.get("path"))
    if kind == "docker":
        result["engine"] = _text("environment.engine", given.get("engine") or "docker")
        result["image"] = _text("environment.image", given.get("image"))
        if not result["image"] or result["image"].startswith("-"):
            raise _fail("environment.image", "the name of an image", given.get("image"))
        result["options"] = _list("environment.options", given.get("options") or [], _text)
    return result


def _env(value: Any) -> Dict[str, str]:
    for name, text in _mapping("env", value).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise _fail("env", "names without '='", name)
        _text(f"env.{name}", text)
    return dict(value)


def _resources(value: Any) -> Dict[str, Any]:
    given = _mapping("resources", value)
    memory = given.get("memory_mb")
    return {
        "cpus": _number("resources.cpus", given.get("cpus", 1.0), 0),
        "gpus": _whole("resources.gpus", given.get("gpus", 0), 0),
        "memory_mb": None if memory is None else _number("resources.memory_mb", memory, 0, above=True),
    }


def _limit(spec: Dict[str, Any], field: str) -> Any:
    value = spec.get(field)
    return None if value is None else _number(field, value, 0, above=True)


def check_spec(spec: Any) -> Dict[str, Any]:
    """The spec with every key filled in. Raises ClientError that names the job and the field."""
    if not isinstance(spec, dict):
        raise _fail("attempt", "a mapping", spec)
    juid, number = check_key(spec.get("juid"), spec.get("attempt"))
    try:
        unknown = sorted(set(spec) - set(_KEYS))
        if unknown:
            raise ClientError(f"unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
        command = _list("command", spec.get("command"), _text)
        if not command or not command[0]:
            raise _fail("command", "a list that begins with a program", command)
        quota = spec.get("log_quota_mb", 1024)
        return {
            "juid": juid,
            "attempt": number,
            "name": _text("name", spec.get("name") or juid),
            "nickname": _text("nickname", spec.get("nickname") or ""),
            "command": command,
            "code": None if spec.get("code") is None else _tree("code", spec["code"]),
            "data": _list("data", spec.get("data") or [], lambda f, v: _item(f, v, True)),
            "persist": _list("persist", spec.get("persist") or [], lambda f, v: _item(f, v, False)),
            "env": _env(spec.get("env") or {}),
            "environment": _environment(spec.get("environment") or {}),
            "setup": _list("setup", spec.get("setup") or [], _text),
            "resources": _resources(spec.get("resources") or {}),
            "time_limit_s": _limit(spec, "time_limit_s"),
            "grace_s": _number("grace_s", 10.0 if spec.get("grace_s") is None else spec["grace_s"], 0),
            "log_quota_mb": None if quota is None else _number("log_quota_mb", quota, 0, above=True),
            "lease_s": _limit(spec, "lease_s"),
        }
    except ClientError as error:
        raise ClientError(f"{juid}.{number}: {error}") from None


def check_slots(slots: Any) -> Dict[str, Any]:
    """Slots of a host: cpus, gpus, memory_mb, max_jobs; null means what the machine has (or no limit of jobs)."""
    given = _mapping("slots", {} if slots is None else slots)
    unknown = sorted(set(given) - {"cpus", "gpus", "memory_mb", "max_jobs"})
    if unknown:
        raise ClientError(f"slots: unknown key {unknown[0]!r}; known are cpus, gpus, memory_mb, max_jobs")
    result: Dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key in ("gpus", "max_jobs"):
            result[key] = _whole(f"slots.{key}", value, 1 if key == "max_jobs" else 0)
        else:
            result[key] = _number(f"slots.{key}", value, 0, above=True)
    return result
