"""The prompt shell: the same commands, one a line."""

from __future__ import annotations

import shlex
import sys

import click

from monkey.cli.base import home, run_line

_PROMPT = "monkey> "


def shell(cli: click.Group) -> int:
    """Reads commands until `exit` or Ctrl-D; goes on after errors. Returns the exit code (0)."""
    keep = _history(cli)
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            click.echo()
            break
        except KeyboardInterrupt:
            click.echo()
            continue
        try:
            words = shlex.split(line)
        except ValueError as error:
            click.echo(f"monkey: this line cannot be read: {error}", err=True)
            continue
        if words[:1] == ["monkey"]:
            words = words[1:]
        if not words:
            continue
        if words[0] in {"exit", "quit"}:
            break
        run_line(cli, words)
        sys.stdout.flush()
    keep()
    return 0


def _history(cli: click.Group):  # type: ignore[no-untyped-def]
    try:
        import readline
    except ImportError:
        return lambda: None
    place = home().root / "shell_history"
    try:
        readline.read_history_file(place)
    except OSError:
        pass
    readline.set_history_length(1000)
    readline.set_completer_delims(" ")
    readline.set_completer(lambda text, number: _complete(cli, readline.get_line_buffer(), text, number))
    readline.parse_and_bind("tab: complete")

    def keep() -> None:
        try:
            if place.parent.is_dir():
                readline.write_history_file(place)
                place.chmod(0o600)
        except OSError:
            pass

    return keep


def _complete(cli: click.Group, line: str, text: str, number: int) -> str | None:
    from click.shell_completion import ShellComplete

    try:
        words = shlex.split(line)
    except ValueError:
        return None
    before = words[:-1] if text else words
    found = ShellComplete(cli, {}, "monkey", "_MONKEY_COMPLETE").get_completions(before, text)
    names = [str(item.value) + " " for item in found if str(item.value).startswith(text)]
    return names[number] if number < len(names) else None
