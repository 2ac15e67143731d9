"""`monkey explain` and `monkey events`: why a job is where it is, and what was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import click

from monkey.cli.base import (
    EXIT_INTERRUPTED,
    command,
    home,
    json_option,
    open_api,
    open_api_of_job,
    open_api_to_read,
    print_json,
)
from monkey.cli.ids import complete_jobs, job_argument
from monkey.errors import UsageProblem

# A time within a sentence.
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", re.ASCII)
# Of all jobs together; of one job all that is kept.
_SHOWN = 50


@command(short_help="Say why a job waits, where it went, why it ended.")
@job_argument
@json_option("juid, state and the sentences")
def explain(ident: str, as_json: bool) -> None:
    """Say in sentences why a job is where it is: what it waits for, why it went to its host and what else was
    considered, why it was tried again, why it failed.

    \b
    Examples:
      monkey explain kob
      monkey explain --juid 26-11-21-001 --json
    """
    found = open_api_of_job(ident).explain(ident)
    if as_json:
        print_json(found)
        return
    from monkey.cli import show

    click.echo(f"{found['juid']} {show.state_coloured(show.clean(found['state']))}")
    for sentence in found["sentences"]:
        text = _ISO.sub(lambda match: show.clock(match[0]), show.clean(sentence["text"]))
        click.echo(f"{show.clock(sentence['at']):<19}  {text}")


@command(short_help="Show what was recorded, as it is recorded.")
@click.argument("ident", metavar="[JOB]", required=False, shell_complete=complete_jobs)
@click.option(
    "-n", "--limit", type=click.IntRange(min=0), metavar="N", help=f"The newest N of them; {_SHOWN}, or all of JOB."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as changes are recorded, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each change as a JSON object on a line of its own.")
def events(ident: str | None, limit: int | None, follow: bool, as_json: bool) -> int:
    """Show the recorded changes of all jobs, or of JOB, oldest first.

    \b
    Examples:
      monkey events
      monkey events kob
      monkey events --follow -n 0 --json
    """
    if ident == "":
        raise UsageProblem("JOB", "is empty; expected a JUID or a nickname")
    api = open_api_of_job(ident) if ident else open_api() if follow else open_api_to_read()
    if api is None:
        return 0
    job = api.job(ident)["juid"] if ident else None
    if limit is None and job is None:
        limit = _SHOWN
    if not follow:
        _print(api.events(job=job, limit=limit), as_json)
        return 0
    from monkey.corestart import ensure_core
    from monkey.follow import events_of

    try:
        _print(events_of(api, lambda: ensure_core(home()), job=job, limit=limit), as_json)
    except KeyboardInterrupt:
        pass
    return EXIT_INTERRUPTED


def _print(changes: Iterable[dict[str, Any]], as_json: bool) -> None:
    from monkey.cli import show

    for change in changes:
        if as_json:
            click.echo(json.dumps(change, ensure_ascii=False))
            continue
        attempt = f".{change['attempt']}" if change.get("attempt") else ""
        state = show.state_coloured(f"{show.clean(change['state']):<12}")
        where = f" on {change['host']}" if change.get("host") else ""
        why = show.clean(f"{change['reason']}{where}: {change['message']}")
        name = show.clean(f"{change['juid']}{attempt} ({change['nickname']})")
        click.echo(f"{show.clock(change['at'])}  {name}  {state}  {why}")
