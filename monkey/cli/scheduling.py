"""`monkey scheduler`."""

from __future__ import annotations

from typing import Any

import click

from monkey.cli.base import Group, command, json_option, open_api, print_json


@click.group("scheduler", cls=Group, invoke_without_command=True, short_help="Show or change how jobs find hosts.")
@click.option("--policy", metavar="NAME", help="From now on choose hosts by this policy; `info` lists them.")
@json_option("the scheduler")
@click.pass_context
def scheduler_group(context: click.Context, policy: str | None, as_json: bool) -> None:
    """Show how jobs find hosts: the policy, what waits for what, and the hosts. Without a command as `info`.

    A new policy holds at once, for all jobs that wait, and stays over restarts. Higher priority goes first under every
    policy, then the older job.

    \b
    Examples:
      monkey scheduler
      monkey scheduler --policy frugal
    """
    if policy is not None:
        _choose(policy, as_json)
    elif context.invoked_subcommand is None:
        _show(as_json)


@command()
@json_option("policy, policies, what waits, hosts")
def info(as_json: bool) -> None:
    """Show the policy and those there are, what waits for what, and the hosts.

    \b
    Examples:
      monkey scheduler info
      monkey scheduler info --json | jq -r .policy
    """
    _show(as_json)


def _choose(policy: str, as_json: bool) -> None:
    from monkey.scheduler.policies import policy_named

    policy_named(policy)  # refuses an unknown one before a core is started for it
    api = open_api()
    before = api.scheduler()["policy"]
    now = api.set_policy(policy)
    if as_json:
        print_json(now)
    elif before == now["policy"]:
        click.echo(f"policy: {before}, as before")
    else:
        click.echo(f"policy: from {before} to {now['policy']}")


def _show(as_json: bool) -> None:
    found = open_api().scheduler()
    if as_json:
        print_json(found)
        return
    from monkey.cli import show
    from monkey.cli.listing import HOST_COLUMNS, host_cells

    described = {one["name"]: one["description"] for one in found["policies"]}
    queued = found["queued"]
    show.pairs(
        [
            ("policy", f"{found['policy']}: {described.get(found['policy'], '')}"),
            ("others", ", ".join(name for name in described if name != found["policy"])),
            ("queued", f"{queued} job{'' if queued == 1 else 's'}"),
        ]
    )
    if found["waiting"]:
        click.echo()
        show.table(("reason", "jobs", "first", "message"), [_waiting(one) for one in found["waiting"]])
    if found["hosts"]:
        click.echo()
        rows = [(host["provider"], *host_cells(host)) for host in found["hosts"]]
        show.table(("provider", *HOST_COLUMNS), rows)


def _waiting(one: dict[str, Any]) -> tuple[object, ...]:
    return one["reason"], one["jobs"], one["first"], one["message"]


scheduler_group.add_command(info)
