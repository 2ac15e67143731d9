#!/usr/bin/env python3
"""Make each role's README.md from its meta/argument_specs.yml, so that the two cannot say different things.

``python tools/role_readme.py`` writes them, ``--check`` names those that differ and exits with 1. Folders of roles may
be given as arguments; without any, all roles of the collection and all site roles are taken.

The example is roles/<role>/meta/example.yml, a playbook that ansible-lint checks with the rest, or, without one, a play
with the variables that the role requires.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "monkey.runner"
ROLE_FOLDERS = (
    ROOT / "collections" / "ansible_collections" / "monkey" / "runner" / "roles",
    ROOT / "roles",
)
_MARK = "<!-- Made by tools/role_readme.py from meta/argument_specs.yml: change that. -->"
# Ansible's semantic markup (docs.ansible.com, "Ansible markup") and what becomes of it in Markdown.
_MARKUP = (
    (re.compile(r"(?<![A-Z])[COVE]\(((?:\\.|[^)])*)\)"), r"`\1`"),
    (re.compile(r"(?<![A-Z])M\(([^)]+)\)"), r"`\1`"),
    (re.compile(r"(?<![A-Z])P\(([^)#]+)#[a-z]+\)"), r"`\1`"),
    (re.compile(r"(?<![A-Z])RV\(([^)]+)\)"), r"`\1`"),
    (re.compile(r"(?<![A-Z])U\(([^)]+)\)"), r"<\1>"),
    (re.compile(r"(?<![A-Z])L\(([^,)]+),\s*([^)]+)\)"), r"[\1](\2)"),
    (re.compile(r"(?<![A-Z])B\(([^)]+)\)"), r"**\1**"),
    (re.compile(r"(?<![A-Z])I\(([^)]+)\)"), r"*\1*"),
)
_SAMPLES = {"str": "…", "path": "/path/to/it", "int": 1, "float": 1.0, "bool": True, "list": [], "dict": {}}


class SpecError(ValueError):
    """A role whose argument spec cannot be made into a page; the text names the file and what was expected."""


def markdown(text: str) -> str:
    """Return text in Ansible's semantic markup as Markdown."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text.replace("\\)", ")")


def render(role: Path) -> str:
    """Return the README of the role in folder ``role``. Raises SpecError when its spec is missing or incomplete."""
    path = role / "meta" / "argument_specs.yml"
    if not path.is_file():
        raise SpecError(f"{path}: missing, expected an argument spec for every role")
    specs = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("argument_specs", {})
    if "main" not in specs:
        raise SpecError(f"{path}: expected argument_specs.main")
    name = _full_name(role)
    spec = specs["main"]
    parts = [_MARK, f"# {name}", markdown(str(_wanted(path, spec, "short_description"))) + "."]
    parts += _paragraphs(_wanted(path, spec, "description"))
    for entry, entry_spec in specs.items():
        title = "## Variables" if entry == "main" else f"## Variables of `tasks_from: {entry}`"
        parts += [title, _table(path, entry_spec.get("options") or {})]
    if len(specs) == 1 and not spec.get("options"):
        parts[-1] = "None."
    parts += ["## Use alone", _use_alone(name), "```yaml\n" + _example(role, name, spec) + "```"]
    return "\n\n".join(parts) + "\n"


def _full_name(role: Path) -> str:
    return f"{COLLECTION}.{role.name}" if "ansible_collections" in role.parts else role.name


def _wanted(path: Path, spec: dict[str, Any], key: str) -> Any:
    if not spec.get(key):
        raise SpecError(f"{path}: expected {key}")
    return spec[key]


def _paragraphs(text: str | list[str]) -> list[str]:
    lines = [text] if isinstance(text, str) else text
    return [markdown(str(line)) for line in lines]


def _table(path: Path, options: dict[str, Any], prefix: str = "") -> str:
    rows = ["| variable | type | default | what |", "| --- | --- | --- | --- |", *_rows(path, options, prefix)]
    return "\n".join(rows)


def _rows(path: Path, options: dict[str, Any], prefix: str) -> list[str]:
    rows: list[str] = []
    for option, spec in options.items():
        if not spec.get("description"):
            raise SpecError(f"{path}: {prefix}{option}: expected a description")
        kind = str(spec.get("type", "str"))
        if kind == "list":
            kind = f"list of {spec.get('elements', 'str')}"
        default = "required" if spec.get("required") else _value(spec["default"]) if "default" in spec else ""
        told = " ".join(_paragraphs(spec["description"]))
        if spec.get("choices"):
            told += " One of " + ", ".join(_value(choice) for choice in spec["choices"]) + "."
        cells = (f"`{prefix}{option}`", kind, default, told)
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        inner = f"{prefix}{option}[]." if spec.get("type") == "list" else f"{prefix}{option}."
        rows += _rows(path, spec.get("options") or {}, inner)
    return rows


def _value(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip()
    return f"`{text.removesuffix('...').strip()}`"


def _use_alone(name: str) -> str:
    if name.startswith(f"{COLLECTION}."):
        return (
            f"The role needs the collection `{COLLECTION}` and no other part of Monkey: "
            "`ansible-playbook -i hosts.yml example.yml`."
        )
    return "The role is for this repository's own machines: `ansible-playbook -i hosts.yml example.yml`, from its root."


def _example(role: Path, name: str, spec: dict[str, Any]) -> str:
    example = role / "meta" / "example.yml"
    if example.is_file():
        return example.read_text(encoding="utf-8").rstrip("\n") + "\n"
    options = spec.get("options") or {}
    required = {key: _sample(option) for key, option in options.items() if option.get("required")}
    entry: dict[str, Any] = {"role": name, **({"vars": required} if required else {})}
    title = str(spec["short_description"])
    play = [{"name": title, "hosts": "all", "gather_facts": False, "roles": [entry]}]
    text = yaml.dump(play, Dumper=_Indented, sort_keys=False, allow_unicode=True)
    return "---\n" + text


def _sample(option: dict[str, Any]) -> Any:
    if option.get("choices"):
        return option["choices"][0]
    if option.get("options"):
        inner = {key: _sample(value) for key, value in option["options"].items() if value.get("required")}
        return [inner] if option.get("type") == "list" else inner
    return _SAMPLES.get(str(option.get("type", "str")), "…")


class _Indented(yaml.SafeDumper):
    """Lists inside mappings indented, as ansible-lint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def roles(folders: list[Path]) -> list[Path]:
    """Return the folders of roles: those given, or all of this repository, in order of name."""
    if folders:
        return [folder.resolve() for folder in folders]
    found = [role for folder in ROLE_FOLDERS if folder.is_dir() for role in folder.iterdir() if role.is_dir()]
    return sorted(found)


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages; return the exit code: 1 when one differs under ``--check``, 2 for a bad spec."""
    parser = argparse.ArgumentParser(description="Make each role's README.md from its argument spec.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing, name the pages that differ and exit with 1"
    )
    parser.add_argument("role", nargs="*", type=Path, help="folder of a role (default: all of this repository)")
    arguments = parser.parse_args(argv)
    stale = 0
    for role in roles(arguments.role):
        try:
            page = render(role)
        except (SpecError, yaml.YAMLError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        readme = role / "README.md"
        if readme.is_file() and readme.read_text(encoding="utf-8") == page:
            continue
        stale += 1
        if arguments.check:
            sys.stderr.write(f"{readme}: differs from meta/argument_specs.yml; run tools/role_readme.py\n")
        else:
            readme.write_text(page, encoding="utf-8")
            sys.stdout.write(f"{readme}: written\n")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
