"""`monkey output`."""

from __future__ import annotations

from pathlib import Path

import click

from monkey.cli.base import command, json_option, note, open_api_of_job, print_json
from monkey.cli.ids import job_argument


@command(short_help="Fetch what a job persisted, and its log.")
@job_argument
@click.option("--dest", metavar="DIR", default="monkey-output", show_default=True, help="Write below this folder.")
@json_option("where it was written, files and bytes")
def output(ident: str, dest: str, as_json: bool) -> None:
    """Fetch what a job persisted, and its log, at any time: also while it runs.

    Written to DIR/JUID/: each persisted folder under its own path, and the output as monkey.log. Files that are there
    already are not fetched again; other files there are left alone.

    \b
    Examples:
      monkey output kob
      monkey output --juid 26-11-21-001 --dest results
    """
    api = open_api_of_job(ident)
    job = api.job(ident)
    from monkey.fetch import LOG_NAME, fetch

    fetched = fetch(api, job, Path(dest))
    if as_json:
        print_json(
            {
                "juid": job["juid"],
                "folder": str(fetched.folder),
                "files": fetched.files,
                "bytes": fetched.size_bytes,
                "persist": fetched.persist,
                "skipped": fetched.skipped,
                "log": str(fetched.folder / LOG_NAME),
            }
        )
        return
    from monkey.cli import show

    for line in fetched.skipped:
        note(f"left out: {show.clean(line)}")
    came = show.files_and_bytes(fetched.files, fetched.size_bytes)
    if not fetched.persist:
        why = "job.yml names no `persist` folder" if not job["persist"] else "nothing was persisted yet"
        click.echo(f"{fetched.folder / LOG_NAME} ({show.size(fetched.log_bytes)}); {why}")
    else:
        click.echo(f"{fetched.folder}: {came} new in {', '.join(fetched.persist)}; log in {LOG_NAME}")
