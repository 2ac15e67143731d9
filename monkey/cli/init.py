"""`monkey init`: looks at the folder, asks, and writes a job.yml that explains itself."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from monkey.cli.base import asks, command, note
from monkey.errors import MonkeyError, UsageProblem

_ENVIRONMENTS = (("conda", "environment.yml"), ("docker", "Dockerfile"), ("pip", "requirements.txt"))
_DATA_NAMES = ("data", "dataset", "datasets")
_PERSIST_NAMES = ("output", "outputs", "results", "checkpoints", "logs")
_NEVER = {"monkey-output", "__pycache__", "node_modules", "venv", "env"}
# Beyond this many files the size of a folder is a guess that is not worth the wait.
_COUNTED_FILES = 20_000


@dataclass
class _Answers:
    project: str
    name: str
    env_type: str = "none"
    env_file: str | None = None
    data: list[str] = field(default_factory=list)
    persist: list[str] = field(default_factory=list)
    provider: str = "local"


@command(short_help="Write job.yml for this folder.")
@click.option("--noinput", is_flag=True, help="Ask nothing: write what the folder suggests.")
def init(noinput: bool) -> None:
    """Write job.yml for this folder: environment, data sets, persisted folders, provider.

    What the folder holds is suggested: requirements.txt, environment.yml, Dockerfile, data/, output/. A job.yml that
    is there already is kept as job.yml.old.N.

    \b
    Examples:
      monkey init
      monkey init --noinput
    """
    folder = Path()
    answers = _suggested(folder)
    if not noinput:
        answers = _asked(folder, answers)
    _write(folder, answers)


def _plain_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text, flags=re.ASCII).strip("-.")[:64] or "job"


def _folders(folder: Path) -> list[str]:
    names = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in names if not name.startswith(".") and name not in _NEVER)


def _suggested(folder: Path) -> _Answers:
    here = folder.resolve()
    found = _Answers(project=_plain_name(_project(here)), name=_plain_name(here.name))
    # pip first: it needs nothing on the host but Python.
    for kind, file in sorted(_ENVIRONMENTS, key=lambda pair: pair[0] != "pip"):
        if (folder / file).is_file():
            found.env_type, found.env_file = kind, file
            break
    folders = _folders(folder)
    found.data = [name for name in folders if name in _DATA_NAMES]
    found.persist = [name for name in folders if name in _PERSIST_NAMES] or ["output"]
    return found


def _project(here: Path) -> str:
    for parent in (here, *here.parents):
        if (parent / ".git").exists():
            return parent.name
    return here.name


def _asked(folder: Path, suggested: _Answers) -> _Answers:
    note("Writing job.yml; an empty answer takes what stands in brackets.\n")
    answers = _Answers(
        project=_ask_name("Project name", suggested.project), name=_ask_name("Workflow name", suggested.name)
    )
    answers.env_type, answers.env_file = _ask_environment(folder, suggested)
    note("\nA data set is checksummed and sent once to each host, then shared read-only.")
    answers.data = _ask_folders(folder, "Data set folders", suggested.data, [])
    note("\nPersisted folders come back, and are laid over the code when the job starts again.")
    answers.persist = _ask_folders(folder, "Persisted folders", suggested.persist, answers.data)
    answers.provider = _ask_provider(suggested.provider)
    return answers


def _ask_name(question: str, default: str) -> str:
    from monkey.names import check_name

    while True:
        answer = str(asks(question, default=default))
        try:
            return check_name(answer, question)
        except UsageProblem as problem:
            note(str(problem))


def _ask_environment(folder: Path, suggested: _Answers) -> tuple[str, str | None]:
    kinds = [kind for kind, _ in _ENVIRONMENTS] + ["none"]
    note("\nEnvironment of the command:")
    for number, kind in enumerate(kinds, 1):
        file = dict(_ENVIRONMENTS).get(kind, "")
        there = f" ({file} is here)" if file and (folder / file).is_file() else ""
        note(f"  {number}) {kind}{there}")
    kind = _choice("Environment type", kinds, suggested.env_type)
    if kind == "none":
        return kind, None
    while True:
        file = str(asks("Environment file", default=dict(_ENVIRONMENTS)[kind]))
        if (folder / file).is_file():
            return kind, file
        note(f"{file}: no such file")
        if not click.confirm("Write it down all the same?", default=False, err=True):
            continue
        note("job.yml will not load before that file is there")
        return kind, file


def _choice(question: str, words: list[str], default: str) -> str:
    while True:
        answer = str(asks(question, default=default)).strip()
        if answer.isdigit() and 1 <= int(answer) <= len(words):
            return words[int(answer) - 1]
        if answer in words:
            return answer
        note(f"{answer}: expected a number or one of {', '.join(words)}")


def _ask_folders(folder: Path, question: str, suggested: list[str], taken: list[str]) -> list[str]:
    folders = [name for name in _folders(folder) if name not in taken]
    for number, name in enumerate(folders, 1):
        note(f"  {number}) {name}  {_size(folder / name)}")
    while True:
        default = " ".join(suggested) or "none"
        answer = str(asks(f"{question} (names or numbers, separated by spaces, or none)", default=default)).split()
        if answer == ["none"]:
            return []
        chosen = [folders[int(a) - 1] if a.isdigit() and 1 <= int(a) <= len(folders) else a for a in answer]
        wrong = [name for name in chosen if name in taken or (question.startswith("Data") and name not in folders)]
        if not wrong:
            return list(dict.fromkeys(chosen))
        note(f"{wrong[0]}: expected a folder of this folder that is not taken yet")


def _size(folder: Path) -> str:
    from monkey.cli import show

    count = total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            count += 1
            if count > _COUNTED_FILES:
                return f"more than {show.size(total)}"
            try:
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - a hot loop
            except OSError:
                continue
    return show.size(total)


def _ask_provider(default: str) -> str:
    from monkey.cli.base import open_api

    try:
        known = [provider["name"] for provider in open_api(start=False).providers()]
    except MonkeyError:
        known = ["local"]
    note(f"\nProviders: {', '.join(known)}")
    return _choice("Provider", known, default)


def _write(folder: Path, answers: _Answers) -> None:
    from monkey.jobfile import check_paths, load

    place = folder / "job.yml"
    text = _text(answers)
    if os.path.lexists(place):
        number = 0
        while os.path.lexists(folder / f"job.yml.old.{number}"):
            number += 1
        place.rename(folder / f"job.yml.old.{number}")
        note(f"job.yml -> job.yml.old.{number}")
    place.write_text(text, encoding="utf-8")
    job = load(place)
    click.echo(f"wrote {place}")
    try:
        check_paths(job, folder)
    except UsageProblem as problem:
        note(f"before it runs: {problem}")


def _quoted(value: str) -> str:
    """A YAML scalar that reads back as this text, whatever it holds."""
    import json

    return value if re.fullmatch(r"[A-Za-z_][A-Za-z0-9._/-]*", value) and not _SPECIAL(value) else json.dumps(value)


_SPECIAL = re.compile(r"(?i)(true|false|yes|no|on|off|null|none|y|n)\Z").match


def _items(values: list[str]) -> list[str]:
    lines = []
    for value in values:
        lines += [f"  - name: {_quoted(_plain_name(value))}", f"    path: {_quoted(value)}"]
    return lines


def _section(key: str, comment: str, lines: list[str]) -> list[str]:
    return ["", *(f"# {line}" for line in comment.splitlines()), *([f"{key}:", *lines] if lines else [f"{key}: []"])]


def _text(answers: _Answers) -> str:
    environment: list[str] = [f"  env_type: {answers.env_type}"]
    if answers.env_file:
        environment.append(f"  env_file: {_quoted(answers.env_file)}")
    lines: list[Any] = [
        "---",
        "# How `monkey run COMMAND` runs a command of this folder. Every key may be left out; options override it.",
        f"project_name: {_quoted(answers.project)}",
        f"name: {_quoted(answers.name)}",
        *_section(
            "run",
            "Environment of the command: none, pip, conda or docker, made from env_file once per host.",
            environment,
        ),
        *_section("install", "Roles that run before: conda, docker, cuda10.2, cuda11.1, nvidia-docker, pytorch.", []),
        *_section(
            "code",
            "What is sent as code. `ignore` has patterns as in .gitignore, which counts too; data and persisted\n"
            "folders are left out by themselves.",
            ['  path: "."', "  ignore: []"],
        ),
        *_section(
            "data",
            "Data sets: checksummed, sent once to each host, shared read-only at `path`.",
            _items(answers.data),
        ),
        *_section(
            "persist",
            "Folders that come back (`monkey output`), and are laid over the code when the job starts again.",
            _items(answers.persist),
        ),
        *_section(
            "providers",
            "Where it runs: the first one, or `monkey run -p NAME`. `monkey list providers` shows them.",
            [f"  - name: {_quoted(answers.provider)}"],
        ),
        "",
        "# What one job needs of a host, and when it is ended at the latest.",
        "# resources:",
        "#   cpus: 1",
        "#   gpus: 0",
        "#   memory: 4GB",
        "# time_limit: 2h",
    ]
    return "\n".join(lines) + "\n"
