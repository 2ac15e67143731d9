"""`monkey core start|stop|status`."""

from __future__ import annotations

import os
import sys

import click

from monkey.cli.base import Group, command, home, json_option, note, print_json

_FULL = "its disk is full: nothing new is recorded or started until there is room; free some space for the home"


@click.group("core", cls=Group, short_help="Start, stop or look at the core.")
def core_group() -> None:
    """Start, stop or look at the core: the process that follows all jobs.

    Commands that need a core start one. Stopping it ends no job: they go on where they are, and the next core follows
    them again.

    \b
    Examples:
      monkey core status
      monkey core stop
    """


@command()
@click.option("-f", "--foreground", is_flag=True, help="Stay in the foreground, as a service manager wants it.")
@json_option("the core's status")
def start(foreground: bool, as_json: bool) -> None:
    """Start a core when none runs.

    \b
    Examples:
      monkey core start
      monkey core start --foreground       in a systemd unit
    """
    from monkey import corestart

    place = home()
    if foreground:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "monkey.core", "--home", str(place.root)])
    status = corestart.ensure_core(place)
    if as_json:
        print_json(status)
    else:
        click.echo(f"core running: pid {status['pid']}, version {status['version']}, home {place.root}")


@command(short_help="Stop the core; jobs go on.")
def stop() -> None:
    """Stop the core and wait until it is gone. Jobs go on.

    \b
    Examples:
      monkey core stop
    """
    from monkey import corestart

    click.echo("core stopped" if corestart.stop_core(home()) else "core: not running")


@command(short_help="Show whether a core runs.")
@json_option("pid, version, uptime_s, jobs by state, and whether the disk is full")
def status(as_json: bool) -> None:
    """Show whether a core runs: pid, version, uptime, jobs by state. Never starts one; exit code 2 when none runs.

    \b
    Examples:
      monkey core status --json
    """
    from monkey.apiclient import Api
    from monkey.cli import show
    from monkey.version import __version__

    found = Api(home()).status()
    if as_json:
        print_json(found)
    else:
        jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items() if count)
        show.pairs(
            [
                ("core", f"running, pid {found['pid']}"),
                ("version", found["version"]),
                ("up for", show.span(found["uptime_s"])),
                ("home", found.get("home")),
                ("jobs", jobs or "none"),
                ("record", _FULL if found.get("full") else None),
            ]
        )
    if found["version"] != __version__:
        note(f"this monkey is version {__version__}; `monkey core stop` lets the next command start the right core")


for _command in (start, stop, status):
    core_group.add_command(_command)
