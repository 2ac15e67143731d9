"""From the keys of job.yml to what the roles take, for playbooks that run without the driver.

The words and rules are those of the driver's job file; what run_job cannot do is refused. Keys of the scheduler, which
is not there, are named in a warning, never passed over in silence.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
import shlex
from typing import Any, Callable

from .units import parse_duration_s, parse_memory_mb

# Keys of job.yml that only a scheduler can follow: a play runs its job once, at once. A job.yml that holds them is good
# for both ways, so they are told of, not refused.
SCHEDULER_KEYS = (
    *("priority", "retries", "retry_on", "retry_delay", "lease", "phase_limits", "depends_on", "queue"),
    "max_parallel",
)
# Too near to what a play's own variables are called, such as `release`, to be what was meant.
_COMMON_WORDS = {"lease", "queue"}
# Keys of job.yml. Those that say where a job runs are the inventory's and the caller's business here.
JOB_KEYS = frozenset(
    (
        *("name", "project_name", "command", "run", "install", "setup", "code", "data", "persist", "providers"),
        *("resources", "image", "env", "secrets", "time_limit", "num_nodes", "idle_minutes"),
        *SCHEDULER_KEYS,
    )
)
_SECTIONS = {
    "run": {"env_type", "env_file", "image", "env", "terminate", "install_script"},
    "code": {"path", "ignore"},
    "resources": {"cpus", "gpus", "memory", "memory_mb"},
    "data": {"name", "path", "type", "compression"},
    "persist": {"name", "path", "ignore"},
}
_ENV_FILES = {"pip": "requirements.txt", "conda": "environment.yml", "docker": "Dockerfile"}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"[^=\0\s]+", re.ASCII)


class JobSpecError(ValueError):
    """A key of the job that cannot be used; the text names it and what was expected."""


def read(keys: dict[str, Any], juid: str) -> dict[str, Any]:
    """What the roles take for a job.

    Args:
        keys: keys of job.yml as plain values; others are not looked at. None counts as absent.
        juid: name of the job.

    Returns:
        ``attempt``: the attempt (docs/interfaces.md, "Attempt spec") without code, environment and data;
        ``code``: ``path`` and ``ignore``; ``data``: items with ``name`` and ``path``; ``install``: names;
        ``environment``: ``kind``, ``file`` and ``image``, the latter two None where there is none; ``warnings``: one
        line when there are keys that only a scheduler follows.

    Raises:
        JobSpecError: a key cannot be used.
    """
    given = {key: value for key, value in keys.items() if key in JOB_KEYS and value is not None}
    run, code = _section(given, "run"), _section(given, "code")
    _refuse_unsupported(given)
    command = _command(given.get("command"))
    name = _name("name", given.get("name") or _default_name(command))
    _name("monkey_juid", juid)
    persist = _items("persist", given.get("persist"))
    data = _items("data", given.get("data"))
    code_path = _path("code.path", code.get("path", "."), whole=True)
    return {
        "attempt": {
            "juid": juid,
            "attempt": 1,
            "name": name,
            "nickname": "ops",
            "command": command,
            "persist": [{"name": item["name"], "path": item["path"], "tree": None} for item in persist],
            "env": {**_variables("run.env", run.get("env")), **_variables("env", given.get("env"))},
            "setup": [*_script(run), *_texts("setup", given.get("setup"))],
            "resources": _resources(_section(given, "resources")),
            "time_limit_s": _read("time_limit", parse_duration_s, given.get("time_limit")),
        },
        "code": {
            "path": code_path,
            "ignore": _texts("code.ignore", code.get("ignore"))
            + [pattern for item in data + persist for pattern in _left_out(item["path"], code_path)],
        },
        "data": [{"name": item["name"], "path": item["path"]} for item in data],
        "install": _texts("install", given.get("install")),
        "environment": _environment(run, given.get("image")),
        "warnings": _warnings(given),
    }


def slips(names: Any) -> list[tuple[str, str]]:
    """Of names of variables those that look like a key of job.yml mistyped, each with that key."""
    found = []
    for name in sorted(set(map(str, names)) - JOB_KEYS):
        near = difflib.get_close_matches(name, sorted(JOB_KEYS - _COMMON_WORDS), 1, 0.8)
        if near:
            found.append((name, near[0]))
    return found


def _warnings(given: dict[str, Any]) -> list[str]:
    ignored = [key for key in SCHEDULER_KEYS if given.get(key) not in (None, 0, "", [], {})]
    if not ignored:
        return []
    return ["job.yml: %s: run_job has no scheduler and does not follow that; `monkey run` does" % ", ".join(ignored)]


def _section(given: dict[str, Any], key: str) -> dict[str, Any]:
    section = given.get(key, {})
    if not isinstance(section, dict):
        raise JobSpecError("%s: expected keys and values, found %r" % (key, section))
    _known(key, section)
    return {name: value for name, value in section.items() if value is not None}


def _known(key: str, section: dict[str, Any], place: str = "") -> None:
    known = _SECTIONS[key]
    for name in section:
        if name not in known:
            near = difflib.get_close_matches(str(name), sorted(known), 1, 0.5)
            hint = "did you mean %s?" % near[0] if near else "expected %s" % ", ".join(sorted(known))
            raise JobSpecError("%s.%s: unknown key; %s" % (place or key, name, hint))


def _refuse_unsupported(given: dict[str, Any]) -> None:
    if given.get("secrets"):
        raise JobSpecError("secrets: run_job cannot do that")
    if given.get("num_nodes", 1) != 1:
        raise JobSpecError("num_nodes: run_job cannot do that")


def _command(command: Any) -> list[str]:
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise JobSpecError("command: cannot be split as a shell would: %s" % str(error).lower()) from None
    if not isinstance(command, list) or not command or not command[0]:
        raise JobSpecError("command: expected a list of words, or a line as for a shell")
    return [_text("command", word) for word in command]


def _default_name(command: list[str]) -> str:
    words = [word.rsplit("/", 1)[-1] for word in command if word and not word.startswith("-")]
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "job")
    return re.sub(r"[^A-Za-z0-9._-]", "-", script.rsplit(".", 1)[0])[:64].strip(".-") or "job"


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise JobSpecError("%s: expected 1 to 64 of A-Z a-z 0-9 . _ -, found %r" % (key, value))
    return value


def _text(key: str, value: Any) -> str:
    """Text of a scalar; numbers and truth values as YAML writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise JobSpecError("%s: expected text, found %r" % (key, value))
    text = str(value)
    if "\0" in text:
        raise JobSpecError("%s: holds a zero byte, which no argument or variable can" % key)
    return text


def _texts(key: str, value: Any) -> list[str]:
    if not isinstance(value or [], list):
        raise JobSpecError("%s: expected a list, found %r" % (key, value))
    return [_text(key, item) for item in value or [] if item is not None]


def _variables(key: str, value: Any) -> dict[str, str]:
    """A mapping, or the original Monkey's list of mappings."""
    parts = value if isinstance(value, list) else [value or {}]
    if not all(isinstance(part, dict) for part in parts):
        raise JobSpecError("%s: expected names and values" % key)
    merged = {name: text for part in parts for name, text in part.items()}
    for name in merged:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise JobSpecError("%s: %r is not a name of a variable" % (key, name))
        if name.startswith("MONKEY_") or name == "CUDA_VISIBLE_DEVICES":
            raise JobSpecError("%s.%s: is set by Monkey itself" % (key, name))
    return {name: "" if text is None else _text("%s.%s" % (key, name), text) for name, text in merged.items()}


def _path(key: str, value: Any, whole: bool = False) -> str:
    """A path below the folder of the job; ``whole``: or that folder itself."""
    path = posixpath.normpath(value) if isinstance(value, str) and value else ".."
    out = path == ".." or path.startswith(("/", "~", "../"))
    if out or (path == "." and not whole) or "\0" in path:
        raise JobSpecError("%s: expected a path inside the folder of the job, found %r" % (key, value))
    return path


def _items(key: str, entries: Any) -> list[dict[str, Any]]:
    """Entries of data or persist: ``name`` and ``path``; one of persist may be a path alone."""
    if not isinstance(entries or [], list):
        raise JobSpecError("%s: expected a list, found %r" % (key, entries))
    items: list[dict[str, Any]] = []
    for number, entry in enumerate(part for part in entries or [] if part is not None):
        place = "%s[%d]" % (key, number)
        item = {"path": entry} if isinstance(entry, str) and key == "persist" else entry
        if not isinstance(item, dict):
            raise JobSpecError("%s: expected name and path, found %r" % (place, entry))
        _known(key, item, place)
        if item.get("ignore") or item.get("type", "copy") not in ("copy", None):
            raise JobSpecError("%s: run_job knows neither ignore nor mount" % place)
        path = _path("%s.path" % place, item.get("path") or (item.get("name") if key == "persist" else None))
        name = item.get("name") or re.sub(r"[^A-Za-z0-9._-]+", "-", path)[-64:].lstrip(".-")
        items.append({"name": _name("%s.name" % place, name), "path": path})
    names = [item["name"] for item in items]
    for name in names:
        if names.count(name) > 1:
            raise JobSpecError("%s: two items are named %r; expected each name once" % (key, name))
    return items


def _left_out(path: str, code_path: str) -> list[str]:
    """The pattern that leaves a folder out of the code: gitignore(5)."""
    beneath = posixpath.relpath(path, code_path)
    if beneath == "." or beneath.startswith(".."):
        return []
    return ["/" + "".join("\\" + c if c in "\\*?[]!# " else c for c in beneath)]


def _script(run: dict[str, Any]) -> list[str]:
    if "install_script" not in run:
        return []
    script = shlex.quote("./" + _path("run.install_script", run["install_script"]))
    return ["if command -v bash >/dev/null; then bash %s; else sh %s; fi" % (script, script)]


def _resources(given: dict[str, Any]) -> dict[str, Any]:
    numbers = {}
    for key, least in (("cpus", 0), ("gpus", 0)):
        value = given.get(key, 1 if key == "cpus" else 0)
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least
        if not good or (key == "cpus" and not value) or (key == "gpus" and value != int(value)):
            expected = "a number above 0" if key == "cpus" else "a whole number of at least 0"
            raise JobSpecError("resources.%s: expected %s, found %r" % (key, expected, value))
        numbers[key] = value
    memory = given.get("memory", given.get("memory_mb"))
    memory_mb = _read("resources.memory", parse_memory_mb, memory)
    return {"cpus": float(numbers["cpus"]), "gpus": int(numbers["gpus"]), "memory_mb": memory_mb}


def _environment(run: dict[str, Any], image: Any) -> dict[str, Any]:
    kind = run.get("env_type", "none")
    if kind not in ("none", *_ENV_FILES):
        raise JobSpecError("run.env_type: expected none, pip, conda or docker, found %r" % (kind,))
    image = run.get("image") or image
    if kind == "none" or (kind == "docker" and image):
        return {"kind": kind, "file": None, "image": _text("image", image) if kind == "docker" else None}
    return {"kind": kind, "file": _path("run.env_file", run.get("env_file") or _ENV_FILES[kind]), "image": None}


def _read(key: str, parse: Callable[[object], Any], value: object) -> Any:
    try:
        return None if value is None else parse(value)
    except ValueError as error:
        raise JobSpecError("%s: found %r, %s" % (key, value, error)) from None


def below(folder: str, path: str, key: str) -> str:
    """The absolute path of something of the job that must be there. Raises JobSpecError, also when a link leads out."""
    root = os.path.realpath(folder)
    full = os.path.join(folder, path)
    if os.path.commonpath([root, os.path.realpath(full)]) != root:
        raise JobSpecError("%s: %r leads out of %s through a link" % (key, path, folder))
    if not os.path.lexists(full):
        raise JobSpecError("%s: %s has no %r" % (key, folder, path))
    return full
