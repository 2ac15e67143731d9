"""`monkey completion`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from monkey.cli.base import command
from monkey.errors import UsageProblem

_SHELLS = ("bash", "zsh", "fish")


@command(short_help="Print the completion script of your shell.")
@click.argument("shell", required=False, type=click.Choice(_SHELLS))
def completion(shell: str | None) -> None:
    """Print the completion script of your shell (commands, options, jobs, providers).

    \b
    Examples:
      eval "$(monkey completion bash)"                                        in ~/.bashrc
      eval "$(monkey completion zsh)"                                         in ~/.zshrc
      monkey completion fish > ~/.config/fish/completions/monkey.fish
    """
    from click.shell_completion import get_completion_class

    from monkey.cli.main import cli

    chosen = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(chosen) if chosen in _SHELLS else None
    if made is None:
        raise UsageProblem("SHELL", f"{chosen or 'no shell'} is not known here; expected one of {', '.join(_SHELLS)}")
    click.echo(made(cli, {}, "monkey", "_MONKEY_COMPLETE").source())
