"""`monkey kill job` and `monkey job cancel|pause|resume|rerun`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from monkey.cli.base import Group, command, home, json_option, open_api, open_api_of_job, print_json
from monkey.cli.ids import jobs_argument
from monkey.errors import UsageProblem


@click.group("kill", cls=Group)
def kill_group() -> None:
    """End jobs.

    \b
    Examples:
      monkey kill job kob
    """


@click.group("job", cls=Group)
def job_group() -> None:
    """Change jobs: cancel, pause, resume, rerun.

    \b
    Examples:
      monkey job pause kob
      monkey job resume --juid 26-11-21-001
      monkey job rerun kob
    """


def _act(idents: list[str], verb: str, as_json: bool, done: Callable[[dict[str, Any]], str]) -> int:
    """Does `verb` to each job; every job is known before the first one is touched."""
    open_api_of_job(idents[0])
    api = open_api()
    found = []
    for ident in idents:
        found.append(api.job(ident))
    results = []
    problem: UsageProblem | None = None
    for job in found:
        try:
            results.append(api.act(job["juid"], verb))
        except UsageProblem as error:
            if len(found) == 1:
                raise
            click.echo(f"monkey: {error}", err=True)
            problem = error
            continue
        if not as_json:
            click.echo(done(results[-1]))
    if as_json:
        print_json(results[0] if len(found) == 1 else results)
    return 2 if problem else 0


def _named(job: dict[str, Any]) -> str:
    return f"{job['juid']} ({job['nickname']})"


def _cancelled(job: dict[str, Any]) -> str:
    from monkey.follow import is_over

    if is_over(job):
        return f"{_named(job)} {job['state']}"
    return f"{_named(job)} is being cancelled; `monkey info job {job['nickname']}` shows when it is over"


def _cancel(idents: list[str], wait: bool, as_json: bool) -> int:
    code = _act(idents, "cancel", as_json and not wait, _cancelled)
    if wait:
        from monkey.corestart import ensure_core
        from monkey.follow import wait_until_over

        api = open_api()
        ended = [wait_until_over(api, ident, lambda: ensure_core(home())) for ident in idents]
        if as_json:
            print_json(ended[0] if len(ended) == 1 else ended)
        else:
            for job in ended:
                click.echo(f"{_named(job)} {job['state']}")
    return code


_wait_option = click.option("-w", "--wait", is_flag=True, help="Return when nothing of it runs any more.")


@command(short_help="Cancel jobs; what they persisted is kept.")
@jobs_argument
@_wait_option
@json_option("the job (an array when there are several)")
def job(idents: list[str], wait: bool, as_json: bool) -> int:
    """Cancel jobs: every process of theirs is ended; what they persisted is kept.

    \b
    Examples:
      monkey kill job kob
      monkey kill job 26-11-21-001 26-11-21-002 --wait
    """
    return _cancel(idents, wait, as_json)


@command()
@jobs_argument
@_wait_option
@json_option("the job (an array when there are several)")
def cancel(idents: list[str], wait: bool, as_json: bool) -> int:
    """Cancel jobs, as `monkey kill job` does.

    \b
    Examples:
      monkey job cancel --juid 26-11-21-001
    """
    return _cancel(idents, wait, as_json)


@command(short_help="Stop running jobs where they are.")
@jobs_argument
@json_option("the job (an array when there are several)")
def pause(idents: list[str], as_json: bool) -> int:
    """Stop the processes of running jobs where they are; they keep their memory and their slots.

    \b
    Examples:
      monkey job pause kob
    """
    return _act(idents, "pause", as_json, lambda job: f"{_named(job)} {_verb(job, 'PAUSED', 'is being paused')}")


@command()
@jobs_argument
@json_option("the job (an array when there are several)")
def resume(idents: list[str], as_json: bool) -> int:
    """Let paused jobs go on.

    \b
    Examples:
      monkey job resume kob
    """
    return _act(idents, "resume", as_json, lambda job: f"{_named(job)} {_verb(job, 'RUNNING', 'is being resumed')}")


@command(short_help="Run jobs again exactly as they were.")
@jobs_argument
@json_option("the new job (an array when there are several)")
def rerun(idents: list[str], as_json: bool) -> int:
    """Run jobs again exactly as they were: same code, data, command and environment, as new jobs.

    \b
    Examples:
      monkey job rerun kob
      monkey logs -f $(monkey job rerun kob --json | jq -r .juid)
    """
    return _act(idents, "rerun", as_json, lambda job: f"{_named(job)} {job['state']}")


def _verb(job: dict[str, Any], reached: str, on_the_way: str) -> str:
    return reached if job["state"] == reached else f"{on_the_way} ({job['state']})"


kill_group.add_command(job)
for _command in (cancel, pause, resume, rerun):
    job_group.add_command(_command)
