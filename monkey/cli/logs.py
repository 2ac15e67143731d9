"""`monkey logs`."""

from __future__ import annotations

import sys

import click

from monkey.cli.base import EXIT_INTERRUPTED, command, home, open_api_of_job
from monkey.cli.ids import job_argument


@command(short_help="Print the output of a job.")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as output comes, until the job has ended.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="The output of this attempt, not of the last.")
def logs(ident: str, follow: bool, attempt: int | None) -> int:
    """Print the output of a job, byte for byte (stdout and stderr as they came).

    \b
    Examples:
      monkey logs kob
      monkey logs -f --juid 26-11-21-001
      monkey logs 26-11-21-001 --attempt 1 > first.log
    """
    api = open_api_of_job(ident)
    job = api.job(ident)
    out = sys.stdout.buffer
    if not follow:
        for data in api.log(job["juid"], attempt=attempt):
            out.write(data)
        out.flush()
        return 0
    from monkey.corestart import ensure_core
    from monkey.follow import log_of

    try:
        for data in log_of(api, job["juid"], lambda: ensure_core(home()), attempt=attempt):
            out.write(data)
            out.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0

