#!/usr/bin/env python3
"""Test hosts from the command line; what Molecule's create.yml and destroy.yml call.

    hosts.py create --count 2 --state FILE [--bare N | --no-systemd] [--prefix NAME] [--owner-pid PID]
    hosts.py destroy --state FILE
    hosts.py kill|cut|heal|power-on NAME --state FILE
    hosts.py list --state FILE
    hosts.py sweep            removes what dead owners left, on the whole machine
    hosts.py image            makes the cached root file system, nothing else
    hosts.py missing          names what this machine lacks (Debian packages), exit code 1 when anything

FILE records the pool and its hosts as JSON, with the keys that Molecule's instance configuration has.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import hostimage
import hostpool

_DEBIAN_PACKAGES = {
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
}


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="make hosts PREFIX1..PREFIXn and record them in the state file")
    create.add_argument("--count", type=int, default=1)
    create.add_argument("--prefix", default="host")
    create.add_argument("--bare", type=int, default=0, metavar="N", help="the last N have nothing but sshd and Python")
    create.add_argument("--no-systemd", action="store_true", help="all are bare")
    create.add_argument("--owner-pid", type=int, default=0, help="the hosts are garbage when this process has ended")
    per_state = [create, commands.add_parser("destroy"), commands.add_parser("list")]
    for name in ("kill", "cut", "heal", "power-on"):
        command = commands.add_parser(name)
        command.add_argument("name")
        per_state.append(command)
    for command in per_state:
        command.add_argument("--state", type=Path, required=True, metavar="FILE")
    for name in ("sweep", "image", "missing"):
        commands.add_parser(name)
    args = parser.parse_args(argv)
    try:
        return _run(args)
    except (hostpool.HostError, hostimage.HostImageError) as error:
        sys.stderr.write(f"hosts.py: {error}\n")
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.command == "create":
        return _create(args)
    if args.command == "destroy":
        return _destroy(args.state)
    if args.command == "sweep":
        sys.stdout.writelines(f"{name}\n" for name in hostpool.sweep())
    elif args.command == "image":
        sys.stdout.writelines(f"{layer}\n" for layer in hostimage.layers())
    elif args.command == "missing":
        missing = [name for name in hostpool.missing_requirements() if name != "root"]
        sys.stdout.writelines(f"{name}\n" for name in sorted({_DEBIAN_PACKAGES.get(name, name) for name in missing}))
        return 1 if missing else 0
    elif args.command == "list":
        sys.stdout.write(args.state.read_text())
    else:
        _act(args.command, args.name, args.state)
    return 0


def _create(args: argparse.Namespace) -> int:
    if args.state.exists() and json.loads(args.state.read_text()).get("pool"):
        raise hostpool.HostError(f"{args.state} records hosts already: destroy them first")
    pool = hostpool.HostPool(owner_pid=args.owner_pid)
    try:
        names = [f"{args.prefix}{n + 1}" for n in range(args.count)]
        with_systemd = 0 if args.no_systemd else args.count - args.bare
        hosts = pool.create_many(names[:with_systemd]) + pool.create_many(names[with_systemd:], systemd=False)
        args.state.parent.mkdir(parents=True, exist_ok=True)
        args.state.write_text(
            json.dumps({"pool": pool.id, "hosts": [_record(host) for host in hosts]}, indent=1) + "\n"
        )
    except BaseException:
        pool.close()
        raise
    return 0


def _record(host: hostpool.Host) -> dict[str, Any]:
    return {
        "instance": host.name,
        "address": host.address,
        "user": host.user,
        "port": host.port,
        "identity_file": str(host.key_file),
        "known_hosts": str(host.known_hosts),
        "host_key": host.host_key,
        "root": str(host.root),
        "systemd": host.systemd,
    }


def _destroy(state: Path) -> int:
    if state.exists():
        pool = json.loads(state.read_text()).get("pool")
        if pool and (hostpool.RUN_DIR / pool).is_dir():
            hostpool.HostPool(pool_id=pool).close()
        state.unlink()
    return 0


def _act(command: str, name: str, state: Path) -> None:
    pool = hostpool.HostPool(pool_id=json.loads(state.read_text())["pool"])
    for host in pool.hosts:
        if host.name == name:
            {"kill": host.kill, "cut": host.cut, "heal": host.heal, "power-on": host.power_on}[command]()
            return
    raise hostpool.HostError(f"no host {name} in {state}; there are {', '.join(host.name for host in pool.hosts)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
