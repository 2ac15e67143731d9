"""`monkey info job|provider`."""

from __future__ import annotations

from typing import Any

import click

from monkey.cli.base import Group, command, json_option, open_api, open_api_of_job, print_json
from monkey.cli.ids import complete_providers, job_argument

_WHEN = {"success": "after success", "end": "after its end"}


@click.group("info", cls=Group)
def info_group() -> None:
    """Show all that is known about one job or provider.

    \b
    Examples:
      monkey info job kob
      monkey info provider lab --json
    """


@command()
@job_argument
@json_option("the job")
def job(ident: str, as_json: bool) -> None:
    """Show a job: state, reason, where, when, code, data, attempts.

    \b
    Examples:
      monkey info job 26-11-21-001
      monkey info job kob --json | jq .exit_code
    """
    api = open_api_of_job(ident)
    found = api.job(ident)
    if as_json:
        print_json(found)
        return
    _show_job(found)


def _show_job(job: dict[str, Any]) -> None:
    from monkey.cli import show

    resources = job.get("resources") or {}
    wants = [f"{resources['cpus']:g} CPUs"] if resources.get("cpus") else []
    wants += [f"{resources['gpus']} GPUs"] if resources.get("gpus") else []
    wants += [f"{resources['memory_mb']} MB"] if resources.get("memory_mb") else []
    code = job.get("code") or {}
    git = code.get("git") or {}
    ran = job.get("run") or {}
    show.pairs(
        [
            ("job", f"{job['juid']} ({job['nickname']})"),
            ("name", job.get("name")),
            ("project", job.get("project")),
            ("state", show.state_words(job)),
            ("reason", f"{job['reason']}: {job['message']}" if job.get("message") else job.get("reason")),
            ("exit code", job.get("exit_code")),
            ("where", "/".join(part for part in (job["provider"], job.get("host")) if part)),
            ("instance", job.get("instance")),
            ("command", show.command_line(job["command"])),
            ("submitted", show.local(job.get("submitted_at"))),
            ("started", show.local(job.get("started_at"))),
            ("finished", show.local(job.get("finished_at"))),
            ("ran for", show.took(job)),
            ("time limit", show.span(job["time_limit_s"]) if job.get("time_limit_s") else None),
            ("resources", ", ".join(wants)),
            *_scheduling(job),
            ("environment", " ".join(str(part) for part in (ran.get("env_type"), ran.get("env_file")) if part)),
            ("install", " ".join(job.get("install") or [])),
            ("setup", "; ".join(job.get("setup") or [])),
            # The names only: a value may be something that the screen should not show.
            ("env", " ".join(job.get("env") or {})),
            ("code", f"{code.get('path') or '.'} ({_amount(code)}, tree {code['tree'][:12]})" if code else None),
            ("git", _commit(git) if git else None),
            *(("data", f"{item['name']}: {item['path']}") for item in job.get("data") or []),
            *(
                ("persist", f"{item['name']}: {item['path']}{' (fetched)' if item.get('tree') else ''}")
                for item in job.get("persist") or []
            ),
        ]
    )
    attempts = job.get("attempts") or []
    if len(attempts) > 1:
        click.echo()
        show.table(
            ("attempt", "host", "state", "reason", "exit", "started", "time"),
            [
                (
                    one["attempt"],
                    one["host"],
                    one["state"],
                    one["reason"],
                    one["exit_code"],
                    show.local(one["started_at"]),
                    show.took(one),
                )
                for one in attempts
            ],
        )


def _scheduling(job: dict[str, Any]) -> list[tuple[str, object]]:
    """What the scheduler goes by, as far as it is not as usual."""
    from monkey.cli import show
    from monkey.jobfile.trying import DEFAULT_PRIORITY

    priority = job.get("priority")
    retries = job.get("retries") or 0
    rows: list[tuple[str, object]] = [("priority", None if priority == DEFAULT_PRIORITY else priority)]
    if retries:
        after = ", ".join(map(str, job.get("retry_on") or ("failed", "preempted", "lost")))
        rows.append(("retries", f"{job.get('retries_used') or 0} of {retries} used; after {after}"))
    rows += [("depends on", f"{one['job']} ({_WHEN[one['when']]})") for one in job.get("depends_on") or []]
    queue, most = job.get("queue"), job.get("max_parallel")
    rows.append(("queue", f"{queue or job.get('name')}, at most {most} at once" if most else queue))
    rows.append(("lease", show.span(job["lease_s"]) if job.get("lease_s") else None))
    limits = (job.get("phase_limits_s") or {}).items()
    rows.append(("phase limits", ", ".join(f"{phase} {show.span(limit_s)}" for phase, limit_s in limits)))
    waits = job["state"] in {"QUEUED", "RECOVERING"}
    rows.append(("next try", show.local(job.get("not_before")) if waits else None))
    rows.append(("held", "`monkey job resume` lets it start" if waits and job.get("held") else None))
    return rows


def _commit(git: dict[str, Any]) -> str:
    branch = f" on {git['branch']}" if git.get("branch") else ""
    return f"{git['commit'][:12]}{branch}{', with uncommitted changes' if git['dirty'] else ''}"


def _amount(code: dict[str, Any]) -> str:
    from monkey.cli import show

    return show.files_and_bytes(code.get("files") or 0, code.get("size_bytes") or 0)


@command()
@click.argument("name", shell_complete=complete_providers)
@json_option("the provider with its hosts")
def provider(name: str, as_json: bool) -> None:
    """Show a provider and its hosts.

    \b
    Examples:
      monkey info provider local
    """
    api = open_api()
    found = api.provider(name)
    if as_json:
        print_json(found)
        return
    show_provider(found)


def show_provider(found: dict[str, Any]) -> None:
    """The provider's page: what it is, and a line per host."""
    from monkey.cli import show
    from monkey.cli.listing import HOST_COLUMNS, host_cells

    show.pairs([("provider", found["name"]), ("type", found["type"]), ("playbook", found.get("playbook"))])
    if found["hosts"]:
        click.echo()
        show.table(HOST_COLUMNS, [host_cells(host) for host in found["hosts"]])


for _command in (job, provider):
    info_group.add_command(_command)
