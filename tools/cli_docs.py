#!/usr/bin/env python3
"""Put the help texts of `monkey` into README.md and docs/cli.md, so that the pages and the program say the same.

``python tools/cli_docs.py`` writes them, ``--check`` names the pages that differ and exits with 1.

A page is changed only between a line ``<!-- help: monkey run -->`` and the next ``<!-- end of help -->``; the words
after ``help:`` are the command whose ``--help`` stands there, or ``help: all`` for every command with a heading.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from monkey.cli.main import cli  # noqa: E402

PAGES = ("README.md", "docs/cli.md")
_BLOCK = re.compile(r"(<!-- help: (?P<what>[a-z ]+) -->\n).*?(<!-- end of help -->)", re.S)
# The width that click takes when nobody looks.
_COLUMNS = "80"


class PageError(ValueError):
    """A page whose marks name no command; the text says which."""


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that is not hidden, without `monkey`, groups before what is in them."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, (*path, name))


def help_text(path: tuple[str, ...]) -> str:
    """What `monkey PATH --help` prints into a pipe."""
    done = CliRunner().invoke(cli, [*path, "--help"], prog_name="monkey", env={"COLUMNS": _COLUMNS})
    if done.exit_code:
        raise PageError(f"monkey {' '.join(path)} --help: exit code {done.exit_code}")
    return done.output.rstrip() + "\n"


def render(page: str) -> str:
    """The text of a page with the help texts of now.

    Raises:
        PageError: a mark names no command.
    """
    known = set(commands())

    def block(match: re.Match[str]) -> str:
        what = match["what"]
        if what == "all":
            body = "\n".join(f"## {' '.join(('monkey', *path))}\n\n{_fenced(path)}" for path in commands() if path)
            return f"{match[1]}\n{body}\n{match[3]}"
        path = tuple(what.split()[1:])
        if not what.startswith("monkey") or path not in known:
            raise PageError(f"help: {what}: no such command")
        return f"{match[1]}\n{_fenced(path)}\n{match[3]}"

    return _BLOCK.sub(block, page)


def _fenced(path: tuple[str, ...]) -> str:
    return f"```text\n{help_text(path)}```\n"


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages; the exit code: 1 when one differs under ``--check``, 2 for a wrong mark."""
    parser = argparse.ArgumentParser(description="Put the help texts of monkey into the pages that show them.")
    parser.add_argument("--check", action="store_true", help="change nothing, name the pages that differ, exit with 1")
    arguments = parser.parse_args(argv)
    stale = 0
    for name in PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        try:
            fresh = render(text)
        except PageError as error:
            sys.stderr.write(f"{name}: {error}\n")
            return 2
        if fresh == text:
            continue
        stale += 1
        if arguments.check:
            sys.stderr.write(f"{name}: differs from --help; run tools/cli_docs.py\n")
        else:
            path.write_text(fresh, encoding="utf-8")
            sys.stdout.write(f"{name}: written\n")
    return 1 if arguments.check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
