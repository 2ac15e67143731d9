"""`monkey provider add|remove|check|drain|resume` and `monkey create instance`."""

from __future__ import annotations

from typing import Any

import click

from monkey.cli.base import Group, asks, command, json_option, note, open_api, print_json
from monkey.cli.ids import complete_hosts, complete_providers
from monkey.errors import UsageProblem

_TYPES = ("ssh",)
_ALL_TYPES = ("local", "ssh", "aws", "gcp", "slurm")


@click.group("provider", cls=Group)
def provider_group() -> None:
    """Add, remove, check or drain providers: the places where jobs run.

    `local`, this machine, is there from the start.

    \b
    Examples:
      monkey provider add lab --type ssh --host me@10.0.0.2 --host me@10.0.0.3:2222 --key ~/.ssh/id_ed25519
      monkey provider check lab
      monkey provider drain lab 10.0.0.2 --reason "new disk"
      monkey provider remove lab
    """


@click.group("create", cls=Group)
def create_group() -> None:
    """Create instances on a provider that makes them."""


@command(short_help="Add a provider: check its hosts, pin their keys.")
@click.argument("name", required=False)
@click.option("--type", "kind", metavar="TYPE", help="ssh: machines that you reach with ssh.")
@click.option("--host", "hosts", metavar="[USER@]HOST[:PORT]", multiple=True, help="A machine; give it once for each.")
@click.option("--key", metavar="FILE", help="The private key to log in with; without it, as ssh does by itself.")
@click.option("--ssh-config", metavar="FILE", help="An ssh_config to use instead of yours.")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="Jobs at once on each host, whatever they ask.")
@click.option("--noinput", is_flag=True, help="Ask nothing: a missing value is an error, shown host keys are taken.")
@click.option("-y", "--yes", is_flag=True, help="Take the host keys that are shown without asking.")
@json_option("the provider with its hosts")
def add(
    *,
    name: str | None,
    kind: str | None,
    hosts: tuple[str, ...],
    key: str | None,
    ssh_config: str | None,
    slots: int | None,
    noinput: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Add a provider: check each host, pin its host key after showing it, and write it down.

    What is not given as an option is asked for. Your own ssh_config holds: aliases, User, ProxyJump, agents.

    \b
    Examples:
      monkey provider add lab
      monkey provider add lab --type ssh --host me@10.0.0.2:22 --key ~/.ssh/id_ed25519 --slots 2 --noinput
    """
    name = _given("NAME", name, noinput, "Name of the provider")
    _check_new_name(name)
    kind = _given("--type", kind, noinput, "Type", default="ssh")
    _check_type(kind)
    named = list(hosts)
    if not named and not noinput:
        named = asks("Hosts (user@host:port, separated by spaces)").split()
    if not named:
        raise UsageProblem("--host", "is missing: expected at least one [user@]host[:port]")
    files = {"key_file": _file("--key", key), "ssh_config": _file("--ssh-config", ssh_config)}
    body: dict[str, Any] = {"hosts": named, **files}
    api = open_api()
    if name in [provider["name"] for provider in api.providers()]:
        raise UsageProblem(name, f"there is a provider of this name; `monkey provider remove {name}` takes it away")
    keys = api.probe(body)
    bad = [host for host in keys if host["error"]]
    if bad:
        more = f"; {len(bad) - 1} more could not be used either" if len(bad) > 1 else ""
        host, error = bad[0]["host"], bad[0]["error"]
        # Most sentences name the host themselves.
        raise UsageProblem("--host" if host in error else host, f"{error}{more}; nothing was added")
    for host in keys:
        note(f"{host['host']}: {host['key_type']} {host['fingerprint']}")
    if not (noinput or yes):
        try:
            agreed = click.confirm("Are these the keys of your hosts?", default=False, err=True)
        except click.Abort as error:
            note("")
            raise UsageProblem("--yes", "no answer about the host keys; nothing was added") from error
        if not agreed:
            note("nothing was added")
            return 1
    pinned = [{"host": host["host"], "fingerprint": host["fingerprint"]} for host in keys]
    added = api.add_provider({**body, "name": name, "type": kind, "hosts": pinned, "slots": slots})
    return _shown(added, as_json)


def _given(field: str, value: str | None, noinput: bool, question: str, default: str | None = None) -> str:
    if value is not None:
        return value
    if noinput:
        raise UsageProblem(field, "is missing")
    return str(asks(question, default=default))


def _check_new_name(name: str) -> None:
    from monkey.names import check_name

    check_name(name, "NAME")
    if name == "local":
        raise UsageProblem("local", "is there from the start: this machine; expected another name")


def _check_type(kind: str) -> None:
    from monkey.names import did_you_mean

    if kind in _TYPES:
        return
    if kind == "local":
        raise UsageProblem("--type", "local is there from the start: this machine; expected ssh")
    if kind in _ALL_TYPES:
        raise UsageProblem("--type", f"{kind} is not there yet; expected ssh")
    raise UsageProblem("--type", f"unknown type {kind!r}{did_you_mean(kind, _ALL_TYPES)}; expected ssh")


def _file(field: str, name: str | None) -> str | None:
    if name is None:
        return None
    from pathlib import Path

    path = Path(name).expanduser().absolute()
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise UsageProblem(field, f"{path}: {error.strerror}; expected a file that can be read") from error
    return str(path)


def _shown(provider: dict[str, Any], as_json: bool) -> int:
    """Prints the table of checks; 1 when a host cannot be used."""
    if as_json:
        print_json(provider)
    else:
        from monkey.cli.info import show_provider

        show_provider(provider)
    return 1 if any(host.get("message") for host in provider["hosts"]) else 0


@command(short_help="Take a provider out of providers.yml.")
@click.argument("name", shell_complete=complete_providers)
def remove(name: str) -> None:
    """Take a provider out of providers.yml, and Monkey's client off its machines. Refused while jobs are there.

    \b
    Examples:
      monkey provider remove lab
    """
    if name == "local":
        raise UsageProblem("local", "cannot be removed: it is this machine")
    api = open_api()
    left = api.remove_provider(name)
    click.echo(f"provider {name} removed")
    for host, why in left.items():
        note(f"the client is still on {host}: {why}")


@command(short_help="Check every host of a provider.")
@click.argument("name", shell_complete=complete_providers)
@json_option("the provider with its hosts")
def check(name: str, as_json: bool) -> int:
    """Check every host of a provider: reachable, Python, CPUs, GPUs, disk. Exit code 1 when one cannot be used.

    \b
    Examples:
      monkey provider check lab
    """
    api = open_api()
    found = api.check_provider(name)
    return _shown(found, as_json)


@command(short_help="Give a host no further jobs.")
@click.argument("name", shell_complete=complete_providers)
@click.argument("host", shell_complete=complete_hosts)
@click.option("--reason", metavar="TEXT", default="", help="Why; shown with the host and to the jobs that wait for it.")
@json_option("the provider with its hosts")
def drain(name: str, host: str, reason: str, as_json: bool) -> None:
    """Give a host no further jobs. What runs there goes on.

    A host that fails again and again is drained by itself. `monkey provider resume` gives it jobs again.

    \b
    Examples:
      monkey provider drain lab 10.0.0.2 --reason "new disk on Friday"
    """
    found = open_api().drain(name, host, reason)
    if as_json:
        print_json(found)
        return
    running = next((one.get("running") or 0 for one in found["hosts"] if one["name"] == host), 0)
    goes_on = f"; {running} job{' goes' if running == 1 else 's go'} on there" if running else ""
    click.echo(f"host {host} of provider {name} is drained: it gets no further jobs{goes_on}")


@command(short_help="Give a drained host jobs again.")
@click.argument("name", shell_complete=complete_providers)
@click.argument("host", shell_complete=complete_hosts)
@json_option("the provider with its hosts")
def resume(name: str, host: str, as_json: bool) -> None:
    """Give a drained host jobs again, as soon as it answers.

    \b
    Examples:
      monkey provider resume lab 10.0.0.2
    """
    found = open_api().resume_host(name, host)
    if as_json:
        print_json(found)
        return
    click.echo(f"host {host} of provider {name} gets jobs again as soon as it answers")


@command(short_help="Create an instance on a cloud provider.")
@click.option("-p", "--provider", metavar="NAME", default="local", shell_complete=complete_providers, help="On which.")
@click.argument("name", required=False)
def instance(provider: str, name: str | None) -> None:
    """Create an instance on a cloud provider (those of type local and ssh have their machines already).

    \b
    Examples:
      monkey create instance -p aws
    """
    api = open_api()
    found = api.provider(provider)
    how = (
        "it is this machine; `monkey provider add NAME --type ssh --host USER@HOST` adds others"
        if found["type"] == "local"
        else "its machines exist already; `monkey provider add NAME --type ssh --host USER@HOST` adds others"
    )
    raise UsageProblem("--provider", f"{found['name']} is of type {found['type']} and creates no instances: {how}")


for _command in (add, remove, check, drain, resume):
    provider_group.add_command(_command)
create_group.add_command(instance)
