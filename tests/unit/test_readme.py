"""What the pages say is what the program does: help texts, commands, links, keys of job.yml, states, sentences."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from monkey.cli.main import cli
from monkey.errors import UsageProblem
from monkey.jobfile import JobFile, load
from monkey.states import State

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TROUBLE = ROOT / "docs" / "troubleshooting.md"
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), ROOT / "examples/mnist/README.md"])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def _name(path: object) -> str:
    return str(path.relative_to(ROOT)) if isinstance(path, Path) else str(path)


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _section(page: Path, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(encoding="utf-8"), re.M | re.S)
    assert found, f"{page.name} has no section {heading!r}"
    return found[1]


def _rows(text: str) -> Iterator[list[str]]:
    """Cells of the body of every table."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and not set(line) <= set("|- ") and len(cells) > 1:
            yield cells


# Help texts


def _cli_docs(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "cli_docs.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_texts_are_those_of_the_program() -> None:
    done = _cli_docs("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_its_help_on_the_page() -> None:
    def below(command: click.Command, path: str) -> Iterator[str]:
        yield path
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                one = command.get_command(context, name)
                if one is not None and not one.hidden:
                    yield from below(one, f"{path} {name}")

    shown = re.findall(r"^Usage: (monkey[a-z ]*?) [\[A-Z]", (ROOT / "docs/cli.md").read_text(encoding="utf-8"), re.M)
    assert sorted(shown) == sorted(set(below(cli, "monkey")) - {"monkey"})
    assert "Usage: monkey [OPTIONS]" in README.read_text(encoding="utf-8")


# Commands


def _shell_lines(page: Path) -> list[str]:
    blocks = [body for language, body in _FENCE.findall(page.read_text(encoding="utf-8")) if language == "bash"]
    return [line for body in blocks for line in body.splitlines() if line.strip() and not line.startswith("#")]


LINES = [(page, line) for page in PAGES for line in _shell_lines(page)]


_PROGRAMS = ("cd", "export", "pip", "ps", "python", "python3", "make", "monkey", "ansible-playbook", "ansible-galaxy")


def _parse(words: list[str]) -> None:
    """Parses a command line of monkey to its last option, without running it. Raises what click raises."""
    command: click.Command = cli
    context = cli.make_context("monkey", list(words))
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize(("page", "line"), LINES, ids=_name)
def test_commands_in_blocks_are_ones(page: Path, line: str) -> None:
    words = shlex.split(line, comments=True)
    assert words[0] in _PROGRAMS, f"{page.name}: no check for {words[0]}: add one"
    if words[0] == "monkey":
        _parse(words[1:])
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        assert [word for word in words[1:] if "=" not in word and word not in targets] == []
    elif words[0] == "ansible-playbook":
        _syntax(words)
    elif words[0] == "ansible-galaxy":
        assert (ROOT / words[3] / "galaxy.yml").is_file()


def _syntax(words: list[str]) -> None:
    folder = str(ROOT)
    made = [os.path.expandvars(word.replace("$PWD", folder)) for word in words if word not in {"INVENTORY", "-i"}]
    made = [word for word in made if not word.startswith("inventories/")]
    inventory = next((word for word in words if word.startswith("inventories/")), "inventories/local.yml")
    assert (ROOT / inventory).is_file()
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [str(program), "-i", inventory, *made[1:], "--syntax-check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_command_in_a_block_would_be_found() -> None:
    for wrong in (["lst", "jobs"], ["list", "jobs", "--runing"], ["provider", "add", "x", "--slots", "many"]):
        with pytest.raises((UsageProblem, click.UsageError)):
            _parse(wrong)


INLINE = sorted({(page, text) for page in PAGES for text in re.findall(r"`(monkey(?: [^`]+)?)`", _prose(page))})


@pytest.mark.parametrize(("page", "text"), INLINE, ids=_name)
def test_commands_in_sentences_are_ones(page: Path, text: str) -> None:
    words = [word for word in shlex.split(text)[1:] if word != "…"]
    command: click.Command = cli
    context = click.Context(cli, info_name="monkey")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        # With its settings: click keeps the names of the help option that it sees first.
        command, context = found, click.Context(found, parent=context, **found.context_settings)
    known = {option for parameter in command.get_params(context) for option in parameter.opts}
    if command.name == "run":
        # From its first word on everything belongs to the command.
        words = words[: next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))]
        words = words[: words.index("--")] if "--" in words else words
    assert [word for word in words if word.startswith("-") and word not in known] == []


# Links


def _slugs(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKS = sorted({(page, link) for page in PAGES for link in re.findall(r"\]\(([^)\s]+)\)", _prose(page))})


@pytest.mark.parametrize(("page", "link"), LINKS, ids=_name)
def test_links_lead_somewhere(page: Path, link: str) -> None:
    if re.match(r"[a-z]+://", link):
        return
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    assert target.exists(), f"{page.name}: {link} leads nowhere"
    if anchor:
        assert anchor in _slugs(target), f"{page.name}: {link}: no such heading"


def test_every_role_is_linked() -> None:
    folders = (ROOT / "collections/ansible_collections/monkey/runner/roles", ROOT / "roles")
    roles = [role for folder in folders for role in folder.iterdir() if role.is_dir()]
    linked = {link for page, link in LINKS if page == README}
    assert {str((role / "README.md").relative_to(ROOT)) for role in roles} <= linked


# job.yml


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """`run.env_type`, `data[].path`: every key that a person can write."""
    for name, field in model.model_fields.items():
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if isinstance(one, type)]
        section = next((one for one in inner if issubclass(one, BaseModel)), None)
        if section is None:
            yield prefix + name
        else:
            yield from _keys(section, f"{prefix}{name}{'' if field.annotation is section else '[]'}.")


def _table() -> dict[str, str]:
    """Status by key, as the README's table says it."""
    found: dict[str, str] = {}
    for cells in _rows(_section(README, "job.yml")):
        for key in re.findall(r"`([^`]+)`", cells[0]):
            assert key not in found, f"{key} stands twice"
            found[key] = cells[1]
    return found


def test_the_table_of_keys_is_the_model() -> None:
    assert set(_table()) == set(_keys(JobFile))
    assert set(_table().values()) == {"works", "in part", "read, no effect", "refused"}


# One value for every key: the whole table is tried.
_ITEMS: dict[str, dict[str, Any]] = {
    "data": {"name": "d", "path": "data"},
    "persist": {"name": "o", "path": "output"},
    "providers": {"name": "local"},
}
_VALUES: dict[str, Any] = {
    "command": "true",
    "run.env_type": "pip",
    "run.env_file": "requirements.txt",
    "run.env": {"A": "b"},
    "env": {"A": "b"},
    "run.terminate": True,
    "setup": ["true"],
    "install": ["conda"],
    "code.ignore": ["x"],
    "persist[].ignore": ["x"],
    "data[].type": "copy",
    "data[].compression": "tar",
    "providers[].spot": True,
    "providers[].preemptible": True,
    "providers[].disk_size_gb": 10,
    "resources.cpus": 1,
    "resources.gpus": 1,
    "resources.memory": "1GB",
    "time_limit": "1h",
    "secrets": ["A"],
    "retries": 1,
    "retry_on": [1, "lost"],
    "retry_delay": "30s",
    "lease": "5m",
    "phase_limits.queued": "1d",
    "phase_limits.machine": "1h",
    "phase_limits.installs": "1h",
    "phase_limits.setup": "10m",
    "phase_limits.cleanup": "1h",
    "max_parallel": 1,
    "depends_on": ["x"],
    "num_nodes": 2,
    "priority": 1,
    "idle_minutes": 5,
}


@pytest.mark.parametrize(("key", "status"), sorted(_table().items()))
def test_a_key_is_refused_or_read_as_the_table_says(key: str, status: str, tmp_path: Path) -> None:
    import yaml

    section, dot, name = key.partition(".")
    value = _VALUES.get(key, "x")
    content: dict[str, Any] = {key: value} if not dot else {section: {name: value}}
    if section.endswith("[]"):
        content = {section[:-2]: [{**_ITEMS[section[:-2]], name: value}]}
    place = tmp_path / "job.yml"
    place.write_text(yaml.safe_dump(content))
    if status == "refused":
        with pytest.raises(UsageProblem, match="not supported yet"):
            load(place)
    else:
        load(place)


# States and sentences


def test_the_table_of_states_is_the_program_s() -> None:
    rows = _rows(_section(README, "Follow, stop, run again"))
    assert [cells[0].strip("`") for cells in rows if cells[0] != "state"] == [str(state) for state in State]


def _sources() -> str:
    folders = (ROOT / "monkey", ROOT / "collections/ansible_collections/monkey/runner/plugins")
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.rglob("*.py"))]
    # Neighbouring string literals are one sentence.
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts))


def test_sentences_of_troubleshooting_are_in_the_code() -> None:
    sources = _sources()
    gone = []
    for cells in _rows(TROUBLE.read_text(encoding="utf-8")):
        if cells[0] in {"it says", "state and code"}:
            continue
        said = cells[1] if len(cells) == 3 else cells[0]
        quoted = re.findall(r"`([^`]+)`", said)
        assert quoted, f"no sentence in {cells}"
        gone += [text for text in quoted if text not in sources]
        if len(cells) == 3:
            gone += [code for code in re.findall(r"`([A-Z_]+)`", cells[0]) if f"{code} = " not in sources]
    assert gone == []
