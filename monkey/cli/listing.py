"""`monkey list jobs|providers|instances`."""

from __future__ import annotations

from typing import Any

import click

from monkey.cli.base import Group, command, json_option, open_api, open_api_to_read, print_json
from monkey.cli.ids import complete_providers
from monkey.errors import UsageProblem


@click.group("list", cls=Group)
def list_group() -> None:
    """List jobs, providers or instances.

    \b
    Examples:
      monkey list jobs                        every job, oldest first
      monkey list jobs --running -p lab
      monkey list jobs --status failed,timeout --json
      monkey list providers --monkey-instances
      monkey list instances
    """


@command()
@click.option("--running", is_flag=True, help="Jobs that are running.")
@click.option("--finished", is_flag=True, help="Jobs that have ended, however they ended.")
@click.option("--queued", is_flag=True, help="Jobs that wait.")
@click.option(
    "--status", metavar="WORD[,WORD]", help="Jobs in these states; the words of Slurm, SkyPilot and Cloudmesh do too."
)
@click.option("-p", "--provider", metavar="NAME", shell_complete=complete_providers, help="Jobs of this provider.")
@click.option("--name", metavar="NAME", help="Jobs of this name.")
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="The newest N of them.")
@json_option("an array of jobs")
def jobs(
    *,
    running: bool,
    finished: bool,
    queued: bool,
    status: str | None,
    provider: str | None,
    name: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """List jobs, oldest first.

    \b
    Examples:
      monkey list jobs --running --queued
      monkey list jobs --status COMPLETED -n 20
      monkey list jobs --json | jq -r '.[].juid'
    """
    words = [word for word, on in (("running", running), ("finished", finished), ("queued", queued)) if on]
    if status is not None:
        from monkey.states import parse_filter

        parse_filter(status)
        words.append(status)
    if provider == "":
        raise UsageProblem("--provider", "is empty; expected the name of a provider")
    api = open_api_to_read()
    found: list[dict[str, Any]] = []
    if api is not None:
        found = api.jobs(state=",".join(words) or None, provider=provider, name=name, limit=limit)
        if provider is not None and not found:
            api.provider(provider)  # refuses a name that is not one
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no jobs" if words or provider or name else "no jobs yet; `monkey run COMMAND` makes one", err=True)
        return
    from monkey.cli import show

    show.table(
        ("juid", "nick", "name", "state", "provider/host", "age", "time", "exit"),
        [
            (
                job["juid"],
                job["nickname"],
                job["name"],
                show.state_and_why(job),
                "/".join(part for part in (job["provider"], job["host"]) if part),
                show.ago(job["submitted_at"]).removesuffix(" ago"),
                show.took(job),
                job["exit_code"],
            )
            for job in found
        ],
    )


@command()
@click.option("--monkey-instances", is_flag=True, help="Show the hosts of each provider too.")
@json_option("an array of providers with their hosts")
def providers(monkey_instances: bool, as_json: bool) -> None:
    """List providers.

    \b
    Examples:
      monkey list providers
      monkey list providers --monkey-instances
    """
    found = open_api().providers()
    if as_json:
        print_json(found)
        return
    from monkey.cli import show

    rows = []
    for provider in found:
        hosts = provider["hosts"]
        running = sum(host.get("running") or 0 for host in hosts)
        rows.append((provider["name"], provider["type"], len(hosts), _sum(hosts, "cpus"), _sum(hosts, "gpus"), running))
    show.table(("name", "type", "hosts", "cpus", "gpus", "running"), rows)
    if monkey_instances:
        click.echo()
        _hosts(found)


@command()
@click.option("-p", "--provider", metavar="NAME", shell_complete=complete_providers, help="Hosts of this provider.")
@json_option("an array of hosts, each with its provider")
def instances(provider: str | None, as_json: bool) -> None:
    """List the hosts of all providers.

    \b
    Examples:
      monkey list instances
      monkey list instances -p lab --json
    """
    api = open_api()
    found = api.providers() if provider is None else [api.provider(provider)]
    if as_json:
        print_json([{"provider": one["name"], **host} for one in found for host in one["hosts"]])
        return
    _hosts(found)


def _sum(hosts: list[dict[str, Any]], key: str) -> str:
    known = [_gpus(host) if key == "gpus" else host[key] for host in hosts if host.get(key) is not None]
    return f"{sum(known):g}" if known else ""


def _hosts(found: list[dict[str, Any]]) -> None:
    from monkey.cli import show

    rows = [(one["name"], *host_cells(host)) for one in found for host in one["hosts"]]
    show.table(("provider", *HOST_COLUMNS), rows)


HOST_COLUMNS = ("host", "address", "state", "python", "cpus", "gpus", "memory", "disk free", "jobs", "message")


def host_cells(host: dict[str, Any]) -> tuple[object, ...]:
    """One host under HOST_COLUMNS."""
    from monkey.cli import show

    running = host.get("running") or 0
    return (
        host["name"],
        address(host),
        host["state"],
        host.get("python"),
        "" if host.get("cpus") is None else f"{host['cpus']:g}",
        _gpus(host),
        show.size(host["memory_mb"] * 1_048_576) if host.get("memory_mb") else "",
        show.size(host["disk_free_mb"] * 1_048_576) if host.get("disk_free_mb") else "",
        f"{running}/{host['max_jobs']}" if host.get("max_jobs") else running,
        "; ".join(dict.fromkeys(text for text in (host.get("drained"), host.get("message")) if text)),
    )


def _gpus(host: dict[str, Any]) -> Any:
    gpus = host.get("gpus")
    return len(gpus) if isinstance(gpus, list) else gpus


def address(host: dict[str, Any]) -> str:
    """`user@address:port`, as far as they are known."""
    user = f"{host['user']}@" if host.get("user") else ""
    port = f":{host['port']}" if host.get("port") else ""
    return f"{user}{host.get('address') or ''}{port}"


for _command in (jobs, providers, instances):
    list_group.add_command(_command)
