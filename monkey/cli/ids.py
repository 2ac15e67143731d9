"""Naming jobs and providers on the command line: arguments and completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from monkey.errors import MonkeyError, UsageProblem

# Completion must not make a person wait.
_COMPLETED_JOBS = 50
_JOB_IS_MISSING = "is missing: a JUID such as 26-11-21-001, or a nickname; see `monkey list jobs`"


def complete_jobs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """JUIDs and nicknames of the newest jobs, when a core runs."""
    from monkey.cli.base import open_api

    try:
        jobs = open_api(start=False).jobs(limit=_COMPLETED_JOBS)
    except (MonkeyError, OSError):
        return []
    found = []
    for job in reversed(jobs):
        for ident in (job["juid"], job["nickname"]):
            if ident.startswith(incomplete):
                found.append(CompletionItem(ident, help=f"{job['state']} {job['name']}"))
    return found


def complete_providers(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of providers, when a core runs."""
    from monkey.cli.base import open_api

    try:
        names = [provider["name"] for provider in open_api(start=False).providers()]
    except (MonkeyError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the hosts of the provider that was named before, when a core runs."""
    from monkey.cli.base import open_api

    try:
        hosts = open_api(start=False).provider(str(ctx.params.get("name") or ""))["hosts"]
    except (MonkeyError, OSError):
        return []
    return [CompletionItem(host["name"], help=host["state"]) for host in hosts if host["name"].startswith(incomplete)]


def job_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """One job, as argument or with --juid; the function gets `ident`."""
    import functools

    @functools.wraps(function)
    def named(*args: Any, ident: str | None, juid: str | None, **options: Any) -> Any:
        if ident and juid and ident != juid:
            raise UsageProblem("--juid", f"names {juid}, the argument {ident}; expected one job")
        chosen = ident or juid
        if not chosen:
            raise UsageProblem("JOB", _JOB_IS_MISSING)
        return function(*args, ident=chosen, **options)

    add = click.argument("ident", metavar="JOB", required=False, shell_complete=complete_jobs)
    return add(click.option("--juid", metavar="JOB", help="The job, as in the argument.")(named))


def jobs_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jobs, as arguments or with --juid; the function gets `idents`."""
    import functools

    @functools.wraps(function)
    def named(*args: Any, idents: list[str], **options: Any) -> Any:
        if not idents:
            raise UsageProblem("JOB", _JOB_IS_MISSING)
        return function(*args, idents=idents, **options)

    return jobs_or_none(named)


def jobs_or_none(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jobs_argument`, but `idents` may be empty."""
    import functools

    @functools.wraps(function)
    def named(*args: Any, idents: tuple[str, ...], juid: tuple[str, ...], **options: Any) -> Any:
        chosen = list(dict.fromkeys([*idents, *juid]))
        if not all(chosen):
            raise UsageProblem("JOB", _JOB_IS_MISSING)
        return function(*args, idents=chosen, **options)

    add = click.argument("idents", metavar="JOB...", nargs=-1, shell_complete=complete_jobs)
    return add(click.option("--juid", metavar="JOB", multiple=True, help="A job, as in the arguments.")(named))
