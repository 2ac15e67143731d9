"""`monkey kill job` and `monkey job cancel|pause|resume|reset|rerun|update`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from monkey.cli.base import (
    Group,
    command,
    home,
    json_option,
    open_api,
    open_api_of_job,
    open_api_to_read,
    print_json,
)
from monkey.cli.ids import complete_providers, job_argument, jobs_argument, jobs_or_none
from monkey.errors import UsageProblem

_WAITING = {"QUEUED", "RECOVERING"}


@click.group("kill", cls=Group)
def kill_group() -> None:
    """End jobs.

    \b
    Examples:
      monkey kill job kob
    """


@click.group("job", cls=Group)
def job_group() -> None:
    """Change jobs: cancel, pause, resume, reset, rerun, update.

    \b
    Examples:
      monkey job pause kob
      monkey job resume --juid 26-11-21-001
      monkey job rerun --failed
      monkey job update kob --priority 900
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


@command(short_help="Stop jobs where they are, or hold them back.")
@jobs_argument
@json_option("the job (an array when there are several)")
def pause(idents: list[str], as_json: bool) -> int:
    """Stop the processes of running jobs where they are; they keep their memory and their slots. A job that waits is
    held back.

    \b
    Examples:
      monkey job pause kob
    """
    return _act(idents, "pause", as_json, _paused)


@command()
@jobs_argument
@json_option("the job (an array when there are several)")
def resume(idents: list[str], as_json: bool) -> int:
    """Let paused jobs go on.

    \b
    Examples:
      monkey job resume kob
    """
    return _act(idents, "resume", as_json, _resumed)


@command(short_help="Put jobs that have ended back into the queue.")
@jobs_argument
@json_option("the job (an array when there are several)")
def reset(idents: list[str], as_json: bool) -> int:
    """Put jobs that have ended back into the queue: the same job, a new attempt, its retries counted anew.

    Persisted folders are laid over the code of the new attempt. `monkey job rerun` makes a new job instead.

    \b
    Examples:
      monkey job reset kob
    """
    return _act(idents, "reset", as_json, lambda job: f"{_named(job)} {job['state']}")


@command(short_help="Run jobs again exactly as they were.")
@jobs_or_none
@click.option("--failed", is_flag=True, help="All that failed, timed out or were lost and were not run again yet.")
@click.option("-p", "--provider", metavar="NAME", shell_complete=complete_providers, help="With --failed: of this one.")
@click.option("-n", "--name", metavar="NAME", help="With --failed: jobs of this name.")
@json_option("the new job (an array when there are several, or with --failed)")
def rerun(idents: list[str], failed: bool, provider: str | None, name: str | None, as_json: bool) -> int:
    """Run jobs again exactly as they were: same code, data, command and environment, as new jobs.

    \b
    Examples:
      monkey job rerun kob
      monkey job rerun --failed --name sweep
      monkey logs -f $(monkey job rerun kob --json | jq -r .juid)
    """
    if failed:
        return _rerun_failed(idents, provider, name, as_json)
    for option, value in (("--provider", provider), ("--name", name)):
        if value is not None:
            raise UsageProblem(option, "needs --failed: it says which of the failed jobs")
    if not idents:
        raise UsageProblem("JOB", "is missing: a JUID or nickname; --failed takes all that failed")
    return _act(idents, "rerun", as_json, lambda job: f"{_named(job)} {job['state']}")


def _rerun_failed(idents: list[str], provider: str | None, name: str | None, as_json: bool) -> int:
    if idents:
        raise UsageProblem("--failed", f"takes all that failed, {idents[0]} names one; expected one of them")
    if provider == "":
        raise UsageProblem("--provider", "is empty; expected the name of a provider")
    api = open_api_to_read()
    new: list[dict[str, Any]] = []
    if api is not None:
        if provider is not None:
            api.provider(provider)  # refuses a name that is not one
        new = api.rerun_failed(provider=provider, name=name)
    if as_json:
        print_json(new)
        return 0
    for made in new:
        click.echo(f"{_named(made)} {made['state']} {made['name']}")
    if not new:
        click.echo("nothing to run again: no such job failed, or each was run again already", err=True)
    return 0


@command(short_help="Change a job that still waits.")
@job_argument
@click.option("--priority", metavar="N", help="0 to 1000; higher goes first.")
@click.option(
    "--depends-on", metavar="ID[,ID]", multiple=True, help="It waits for these jobs and no others; '' for none at all."
)
@click.option("--max-parallel", metavar="N", help="Fewer than N of its queue may be out when it starts; or none.")
@json_option("the job")
def update(
    ident: str, priority: str | None, depends_on: tuple[str, ...], max_parallel: str | None, as_json: bool
) -> int:
    """Change a job that still waits in the queue. What is not given stays as it is.

    \b
    Examples:
      monkey job update kob --priority 900
      monkey job update kob --depends-on 26-11-21-001,afterany:bab
    """
    from monkey.jobfile import JobFile, merge

    lifted = max_parallel == "none"
    given = {
        "priority": priority,
        "depends_on": ",".join(depends_on) if depends_on else None,
        "max_parallel": None if lifted else max_parallel,
    }
    read = merge(JobFile(), given)
    values = {"priority": read.priority, "depends_on": read.dependencies, "max_parallel": read.max_parallel}
    fields = {key: value for key, value in values.items() if given[key] is not None}
    if lifted:
        fields["max_parallel"] = None
    if not fields:
        raise UsageProblem("--priority", "is missing; expected --priority, --depends-on or --max-parallel")
    open_api_of_job(ident)
    changed = open_api().change(ident, fields)
    if as_json:
        print_json(changed)
    else:
        now = [f"priority {changed['priority']}"] if "priority" in fields else []
        if "depends_on" in fields:
            now.append(f"depends on {', '.join(one['job'] for one in changed['depends_on']) or 'nothing'}")
        if "max_parallel" in fields:
            now.append(f"max_parallel {changed['max_parallel'] or 'none'}")
        click.echo(f"{_named(changed)} {changed['state']}: {'; '.join(now)}")
    return 0


def _paused(job: dict[str, Any]) -> str:
    if job["state"] in _WAITING and job.get("held"):
        return f"{_named(job)} is held back ({job['state']})"
    reached = job["state"] == "PAUSED"
    return f"{_named(job)} {job['state']}" if reached else f"{_named(job)} is being paused ({job['state']})"


def _resumed(job: dict[str, Any]) -> str:
    if job["state"] in {"RUNNING", *_WAITING}:
        return f"{_named(job)} {job['state']}"
    return f"{_named(job)} is being resumed ({job['state']})"


kill_group.add_command(job)
for _command in (cancel, pause, resume, reset, rerun, update):
    job_group.add_command(_command)
