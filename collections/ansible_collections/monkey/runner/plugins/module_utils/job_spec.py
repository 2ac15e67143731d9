"""From the keys of job.yml to the spec of an attempt, for playbooks that run without the driver."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

from .units import UnitError, duration_s, memory_mb

_NAME = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


class JobSpecError(ValueError):
    """A key of the job that cannot be used; the text names it and what was expected."""


def attempt_spec(keys: dict[str, Any], juid: str) -> dict[str, Any]:
    """The attempt (docs/interfaces.md, "Attempt spec") without code, data and environment.

    Args:
        keys: ``name command persist env setup resources time_limit`` as in job.yml.
        juid: name of the job.

    Raises:
        JobSpecError: a key cannot be used.
    """
    command = keys.get("command")
    if isinstance(command, str):
        command = shlex.split(command)
    if not isinstance(command, list) or not command or not all(isinstance(word, (str, int, float)) for word in command):
        raise JobSpecError("command: expected a list of words, or a line as for a shell")
    resources = keys.get("resources") or {}
    unknown = set(resources) - {"cpus", "gpus", "memory", "memory_mb"}
    if unknown:
        raise JobSpecError("resources.%s: unknown key; expected cpus, gpus or memory" % sorted(unknown)[0])
    name = keys.get("name") or re.sub(r"[^A-Za-z0-9._-]", "-", os.path.basename(str(command[0])))[:64]
    if not _NAME.match(str(name)) or not _NAME.match(juid):
        raise JobSpecError("name: %r is not a name; expected 1 to 64 of A-Z a-z 0-9 . _ -" % (name,))
    memory = resources.get("memory", resources.get("memory_mb"))
    try:
        limit_s = None if keys.get("time_limit") is None else duration_s(keys["time_limit"])
        wanted_mb = None if memory is None else memory_mb(memory)
        cpus, gpus = float(resources.get("cpus") or 1), int(resources.get("gpus") or 0)
    except UnitError as error:
        raise JobSpecError("time_limit or resources.memory: %s" % error)
    except (TypeError, ValueError):
        raise JobSpecError("resources: expected numbers for cpus and gpus")
    if cpus <= 0 or gpus < 0:
        raise JobSpecError("resources: expected cpus above zero and gpus that are not negative")
    return {
        "juid": juid,
        "attempt": 1,
        "name": str(name),
        "nickname": "ops",
        "command": [str(word) for word in command],
        "code": None,
        "data": [],
        "persist": [dict(item, tree=None) for item in keys.get("persist") or []],
        "env": {str(key): str(value) for key, value in variables(keys.get("env")).items()},
        "environment": {"kind": "none"},
        "setup": [str(line) for line in keys.get("setup") or []],
        "resources": {"cpus": cpus, "gpus": gpus, "memory_mb": wanted_mb},
        "time_limit_s": limit_s,
    }


def variables(env: Any) -> dict[str, Any]:
    """``env`` as a mapping, or as the original Monkey's list of one-entry mappings.

    Raises:
        JobSpecError: it is neither.
    """
    parts = env if isinstance(env, list) else [env or {}]
    if not all(isinstance(part, dict) for part in parts):
        raise JobSpecError("env: expected names and values")
    return {key: value for part in parts for key, value in part.items()}


def persist_items(persist: Any) -> list[dict[str, str]]:
    """``persist`` of job.yml, where an entry is a path or has ``name`` and ``path``.

    Raises:
        JobSpecError: an entry is neither, or its path leaves the folder.
    """
    items = []
    for entry in persist or []:
        item = {"path": entry} if isinstance(entry, str) else dict(entry)
        path = os.path.normpath(str(item.get("path", "")))
        if not item.get("path") or path in (".", "..") or path.startswith(("/", "../")):
            raise JobSpecError("persist: %r is not a folder below the code" % (item.get("path"),))
        name = str(item.get("name") or re.sub(r"[^A-Za-z0-9._-]", "-", path)[:64])
        items.append({"name": name, "path": path})
    return items


def data_items(data: Any, folder: str, trees: dict[str, str] | None = None) -> list[dict[str, str]]:
    """``data`` of job.yml: paths on the control machine, or with ``trees`` (by name) the items of an attempt.

    Raises:
        JobSpecError: an entry has no path, or it leaves the folder.
    """
    items = []
    for number, entry in enumerate(data or []):
        path = os.path.normpath(str(entry.get("path", "")))
        if not entry.get("path") or path in (".", "..") or path.startswith(("/", "../")):
            raise JobSpecError("data: %r is not a folder below the code" % (entry.get("path"),))
        name = str(entry.get("name") or "data-%d" % number)
        if trees is None:
            items.append({"name": name, "path": os.path.join(folder, path)})
        else:
            items.append({"name": name, "path": path, "tree": trees[name]})
    return items
