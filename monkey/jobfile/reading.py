"""YAML with the line and column of a mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from monkey.errors import UsageProblem
from monkey.jobfile.model import JobFile
from monkey.jobfile.problems import build

_STR = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
# What is written below these keys is taken letter by letter: 0.10 stays 0.10, `true` stays `true`.
_AS_WRITTEN = frozenset({"env", "command", "time_limit", "memory", "retry_delay", "lease", "phase_limits"})


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as text."""

    def construct_date_text(self, node: yaml.ScalarNode) -> str:
        """The text; SafeLoader's own fails on a malformed date."""
        return node.value if isinstance(node.value, str) else ""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_date_text)


def load(path: Path) -> JobFile:
    """Read a job file.

    Raises UsageProblem: no such file, not UTF-8 or broken YAML (`job.yml:3:7: …`), a key that stands twice, and
    whatever the model refuses (`job.yml: run.env_typ: unknown key; did you mean env_type?`).
    """
    shown = _shown_path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UsageProblem(shown, "no such file; expected a job file") from None
    except OSError as error:
        raise UsageProblem(shown, f"cannot be read: {error.strerror}") from None
    value = _parse(_decode(raw, shown), shown)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else "a single value"
        raise UsageProblem(shown, f"expected keys and values, found {found}")
    return build(value, shown, {})


def _shown_path(path: Path) -> str:
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)


def _decode(raw: bytes, shown: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8")
        raise UsageProblem(_place(shown, before), f"expected UTF-8, found byte 0x{raw[error.start]:02x}") from None


def _code(character: Any) -> str:
    return f"{character if isinstance(character, int) else ord(character):#04x}"


def _place(shown: str, before: str) -> str:
    return f"{shown}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def _parse(text: str, shown: str) -> Any:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_once(node, shown, set())
            _keep_as_written(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
        context = f" ({error.context})" if error.context else ""
        raise UsageProblem(place, f"broken YAML: {error.problem}{context}") from None
    except yaml.reader.ReaderError as error:
        place = _place(shown, text[: int(error.position)])
        raise UsageProblem(place, f"broken YAML: character {_code(error.character)} is not allowed") from None
    except RecursionError:
        raise UsageProblem(shown, "broken YAML: nested too deeply") from None
    except UsageProblem:
        raise
    except ValueError as error:
        # SafeLoader's own for a number of thousands of digits and the like.
        raise UsageProblem(shown, f"broken YAML: {error}") from None


def _check_once(node: yaml.Node, shown: str, seen: set[int]) -> None:
    """Raise UsageProblem for a key that stands twice in a mapping: YAML would quietly take the last."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_once(item, shown, seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                line = key.start_mark.line + 1
                if key.value in lines:
                    place = f"{shown}:{line}:{key.start_mark.column + 1}"
                    raise UsageProblem(place, f"{key.value!r} stands twice, first in line {lines[key.value]}")
                lines[key.value] = line
            _check_once(value, shown, seen)


def _keep_as_written(node: yaml.Node) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in _AS_WRITTEN:
            _to_text(value, set())
        elif key.value in {"run", "resources"}:
            _keep_as_written(value)


def _to_text(node: yaml.Node, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.tag.startswith("tag:yaml.org,2002:") and node.tag != _NULL:
            node.tag = _STR
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _to_text(item, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag != _MERGE:
                _to_text(key, seen)
            _to_text(value, seen)
