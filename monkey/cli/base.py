"""What every command stands on: lazily loaded groups with suggestions, one-line errors, the way to the core."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from monkey.errors import MonkeyError, UsageProblem

if TYPE_CHECKING:
    from monkey.apiclient import Api
    from monkey.paths import Home

F = TypeVar("F", bound=Callable[..., Any])

EXIT_USAGE = 2
# 128 + SIGINT, as a shell reports a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Group(click.Group):
    """A group whose commands are imported when they are asked for: name -> `module:attribute`."""

    def __init__(self, *args: Any, lazy: dict[str, str] | None = None, **attrs: Any) -> None:
        attrs.setdefault("context_settings", _CONTEXT)
        super().__init__(*args, **attrs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = place.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            from monkey.names import suggest

            known = [name for name in self.list_commands(ctx) if not self._hidden(ctx, name)]
            nearest = suggest(args[0], known)
            hint = f"did you mean `{ctx.command_path} {nearest}`?" if nearest else f"expected one of {', '.join(known)}"
            raise UsageProblem(args[0], f"no such command of `{ctx.command_path}`; {hint}")
        return super().resolve_command(ctx, args)

    def _hidden(self, ctx: click.Context, name: str) -> bool:
        command = self.get_command(ctx, name)
        return command is None or command.hidden


def command(**attrs: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """`click.command` with our help options."""
    settings = {**_CONTEXT, **attrs.pop("context_settings", {})}
    return click.command(context_settings=settings, **attrs)


def json_option(what: str) -> Callable[[F], F]:
    """The `--json` of everything that lists or shows."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON, times in ISO 8601 UTC.")


def home() -> Home:
    """The MONKEY_HOME of this command."""
    from monkey.paths import Home

    return Home.find()


def open_api(*, start: bool = True) -> Api:
    """The core's API; starts a core when none runs and `start` is true."""
    from monkey import corestart

    return corestart.open_api(home(), start=start)


def open_api_to_read() -> Api | None:
    """The core's API for a command that only reads; None when nothing was ever recorded in this MONKEY_HOME."""
    from monkey.apiclient import CoreNotRunning

    try:
        return open_api(start=False)
    except CoreNotRunning:
        if home().state.exists() or home().journal.exists():
            return open_api()
        return None


def open_api_of_job(ident: str) -> Api:
    """The core's API for reading about a job that must exist."""
    api = open_api_to_read()
    if api is None:
        raise UsageProblem(ident, f"no such job: nothing was ever run in {home().root}")
    return api


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(text: str, *, dim: bool = False) -> None:
    """A line for the person, on standard error."""
    if dim and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = click.style(text, dim=True)
    click.echo(text, err=True)


def asks(text: str, **options: Any) -> Any:
    """A question on standard error; a missing answer (end of input) is a usage problem."""
    try:
        return click.prompt(text, err=True, **options)
    except click.Abort as error:
        note("")
        raise UsageProblem("", f"no answer to {text!r}; --noinput asks nothing") from error


def utf8_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments as text, byte for byte.

    Raises:
        UsageProblem: one of them is not UTF-8: it could not be written down in the record of a job.
    """
    taken = []
    for number, argument in enumerate(arguments, 1):
        try:
            taken.append(os.fsencode(argument).decode("utf-8"))
        except UnicodeError as error:
            shown = os.fsencode(argument)[:60].decode("utf-8", "backslashreplace")
            raise UsageProblem("command", f"argument {number} ({shown}) is not UTF-8; expected UTF-8 text") from error
    return taken


def run_line(cli: click.Command, arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; every error is one line on standard error."""
    try:
        code = cli.main(list(arguments), prog_name="monkey", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has gone, as `head` does.
        _close_stdout()
        return 128 + 13
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.UsageError as error:
        return _complain(_usage_line(error), EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as error:
        return _complain(error.format_message(), EXIT_USAGE)
    except UsageProblem as error:
        return _complain(str(error), EXIT_USAGE)
    except MonkeyError as error:
        return _complain(str(error), 1)
    except OSError as error:
        _debug()
        where = f"{error.filename}: " if error.filename else ""
        # A full disk (ENOSPC, EDQUOT) is for the user to solve, like a wrong argument.
        full = error.errno in {28, 122}
        return _complain(f"{where}{error.strerror or error}", EXIT_USAGE if full else 1)
    except Exception as error:
        _debug()
        where = f"(MONKEY_DEBUG=1 shows where; the core's log is {home().core_log})"
        return _complain(f"unexpected {type(error).__name__}: {str(error).splitlines()[:1]} {where}", 1)
    return code if isinstance(code, int) else 0


def _debug() -> None:
    if os.environ.get("MONKEY_DEBUG"):
        import traceback

        traceback.print_exc()


def _complain(line: str, code: int) -> int:
    try:
        click.echo(f"monkey: {line}", err=True)
    except OSError:
        pass
    return code


def _close_stdout() -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _usage_line(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "monkey"
    if isinstance(error, click.NoSuchOption):
        nearest = f"; did you mean {error.possibilities[0]}?" if error.possibilities else f"; see `{path} --help`"
        return f"{error.option_name}: no such option of `{path}`{nearest}"
    if isinstance(error, click.MissingParameter):
        name = (error.param.human_readable_name if error.param else None) or "argument"
        if isinstance(error.param, click.Option):
            name = error.param.opts[-1]
        return f"{name}: is missing; see `{path} --help`"
    if isinstance(error, click.BadParameter):
        name = error.param.human_readable_name if error.param else "argument"
        if isinstance(error.param, click.Option):
            name = error.param.opts[-1]
        return " ".join(f"{name}: {error.message}".split())
    return " ".join(error.format_message().split())
