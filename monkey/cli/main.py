"""`monkey`: the tree of commands, and the shell that opens when there is none."""

from __future__ import annotations

import sys

import click

from monkey.cli.base import EXIT_USAGE, Group, run_line
from monkey.version import __version__

_HELP = """Run a command on some machine, follow it, and bring its results back.

\b
Examples:
  monkey run python3 mnist.py --learning-rate 0.14     here, or where job.yml says
  monkey run -p lab -d python3 mnist.py                on the hosts of provider lab, without waiting
  monkey list jobs --running
  monkey explain kob                                   why it waits, or what became of it
  monkey logs -f 26-11-21-001                          or the nickname: monkey logs -f kob
  monkey output kob                                    its results, into monkey-output/

A job is named by its JUID or its three-letter nickname. Everything is recorded in MONKEY_HOME
(default ~/.monkey). `monkey` alone opens a prompt. Exit code 2 means that nothing was done:
the line on standard error says what was expected.
"""


@click.group(
    cls=Group,
    help=_HELP,
    invoke_without_command=True,
    lazy={
        "run": "monkey.cli.run:run",
        "list": "monkey.cli.listing:list_group",
        "info": "monkey.cli.info:info_group",
        "logs": "monkey.cli.logs:logs",
        "explain": "monkey.cli.why:explain",
        "events": "monkey.cli.why:events",
        "output": "monkey.cli.output:output",
        "kill": "monkey.cli.job:kill_group",
        "job": "monkey.cli.job:job_group",
        "create": "monkey.cli.provider:create_group",
        "provider": "monkey.cli.provider:provider_group",
        "scheduler": "monkey.cli.scheduling:scheduler_group",
        "init": "monkey.cli.init:init",
        "core": "monkey.cli.core:core_group",
        "state": "monkey.cli.state:state_group",
        "completion": "monkey.cli.completion:completion",
        "help": "monkey.cli.main:help_command",
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="monkey", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """Runs without a command only: opens the shell for a person."""
    if context.invoked_subcommand is not None:
        return 0
    if sys.stdin.isatty():
        from monkey.cli.shell import shell

        return shell(cli)
    click.echo(context.get_help(), err=True)
    click.echo("monkey: no command", err=True)
    return EXIT_USAGE


@click.command("help", hidden=True)
@click.argument("words", nargs=-1)
def help_command(words: tuple[str, ...]) -> int:
    """Show the help of a command, as --help does."""
    return run_line(cli, [*words, "--help"])


def main() -> None:
    """The console script."""
    raise SystemExit(run_line(cli, sys.argv[1:]))


if __name__ == "__main__":
    main()
