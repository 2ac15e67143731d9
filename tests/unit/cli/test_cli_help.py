"""`--help` of every command, start-up cost, completion."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from monkey.cli.main import cli
from monkey.version import __version__

Run = Callable[..., tuple[int, bytes, str]]
HEAVY = {"fastapi", "pydantic", "rich", "yaml", "ansible_collections", "http.client", "pathspec", "uvicorn", "tinydb"}


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if not below.hidden:
                yield from _commands(below, (*path, name))


ALL = list(_commands(cli))


def test_every_command_of_the_product_is_there() -> None:
    wanted = """run|list jobs|list providers|list instances|info job|info provider|logs|output|kill job|job cancel
    |job pause|job resume|job rerun|job reset|job update|explain|events
    |scheduler|scheduler info|create instance|provider add|provider remove|provider check|provider drain|provider resume
    |init|core start
    |core stop|core status|completion"""
    assert {tuple(one.split()) for one in wanted.split("|")} <= set(ALL)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_explains_with_examples(monkey: Run, path: tuple[str, ...]) -> None:
    code, out, err = monkey(*path, "--help")
    assert (code, err) == (0, "")
    text = out.decode()
    assert text.startswith(f"Usage: {' '.join(('monkey', *path))} ")
    if path != ("create",):
        assert "Examples:" in text and "  monkey" in text
    assert "-h, --help" in text
    assert monkey(*path, "-h")[1] == out


def test_help_command_is_the_same_as_the_option(monkey: Run) -> None:
    assert monkey("help", "list", "jobs")[1] == monkey("list", "jobs", "--help")[1]


def test_version_costs_little_more_than_click() -> None:
    script = "import sys\nfrom monkey.cli.main import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    version, modules = done.stdout.splitlines()
    assert version == f"monkey {__version__}"
    assert not HEAVY & set(modules.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(monkey: Run, shell: str) -> None:
    code, out, _ = monkey("completion", shell)
    assert code == 0 and b"_MONKEY_COMPLETE=" in out


def test_completion_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"_MONKEY_COMPLETE": "bash_complete", "COMP_WORDS": "monkey list j", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "from monkey.cli.main import main; main()"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,jobs\n"
