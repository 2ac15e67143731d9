"""Provider `ssh`: machines that are there already and that the user reaches with ssh."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_serializer

from monkey.errors import UsageProblem
from monkey.names import NAME_PATTERN
from monkey.providers.base import Provider, ProviderSettings
from monkey.providers.core_id import core_id
from monkey.providers.hosts import HostEntry, parse_host
from monkey.providers.ssh_options import SshAccess, check_path, remote_path

PYTHON = "python3"
"""What modules, client and stream run with on the machine: one Python for all three, found through its PATH."""


def _host_text(text: str) -> str:
    parse_host(text)
    return text.strip()


def _remote_home(text: str) -> str:
    if not text.startswith(("/", "~/")) or any(ord(char) < 32 for char in text):
        raise ValueError("expected an absolute path on the host, or one that begins with ~/")
    return text.rstrip("/")


def _local_path(path: Path) -> Path:
    return path.expanduser().absolute()


_HostText = Annotated[str, AfterValidator(_host_text)]
_Slots = Annotated[int, Field(strict=True, ge=1)]
_LocalPath = Annotated[Path, AfterValidator(_local_path)]


class SshSettings(ProviderSettings):
    """Keys of an `ssh` provider.

    Attributes:
        hosts: `user@host:port`, `user@[IPv6]:port` or an alias of ssh_config, each.
        key_file: private key to offer, or None: the agent's and ssh_config's.
        ssh_config: file to use instead of ~/.ssh/config, or None.
        slots: how many jobs may run at once on each machine, or None: as many as its CPUs, GPUs and memory allow.
        host_slots: the same for single machines, by name.
        client_home: folder of the client on the machines.
    """

    hosts: Annotated[list[_HostText], Field(min_length=1)]
    key_file: _LocalPath | None = None
    ssh_config: _LocalPath | None = None
    slots: _Slots | None = None
    host_slots: dict[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], _Slots] = {}
    client_home: Annotated[str, AfterValidator(_remote_home)] | None = None

    @field_serializer("key_file", "ssh_config")
    def _as_text(self, path: Path | None) -> str | None:
        return str(path) if path else None


class SshProvider(Provider):
    """Machines reached with ssh; the user's own ssh_config (ProxyJump, User, agent) holds."""

    kind = "ssh"
    settings_type = SshSettings
    settings: SshSettings

    @property
    def access(self) -> SshAccess:
        """How ssh gets to the machines."""
        return SshAccess(self.home.known_hosts, self.settings.key_file, self.settings.ssh_config)

    def hosts(self) -> list[HostEntry]:
        """The machines of `hosts`, in that order."""
        settings = self.settings
        # One folder per entry: one machine may stand in two providers, and machines may share a home folder (NFS). Two
        # streams of one journal would each acknowledge the other's events.
        own = f"~/.monkey-client/{core_id(self.home)}-{self.name}"
        entries = []
        for text in settings.hosts:
            entry = parse_host(text)
            slots = settings.host_slots.get(entry.name, settings.slots)
            entries.append(
                replace(
                    entry,
                    slots=slots,
                    client_home=settings.client_home or f"{own}-{entry.name}",
                    key_file=settings.key_file,
                    known_hosts=self.home.known_hosts,
                )
            )
        return entries

    def added(self) -> None:
        """Refuse a machine named twice, slots for one that is not there, and files that are not there."""
        names: dict[str, str] = {}
        for text in self.settings.hosts:
            name = parse_host(text).host_key_alias
            if name in names:
                raise UsageProblem("hosts", f"{text} and {names[name]} are the same machine; name it once")
            names[name] = text
        for name in self.settings.host_slots:
            if name.lower() not in names:
                raise UsageProblem("host_slots", f"{name!r} is none of the hosts: {', '.join(names)}")
        for field, path in (("key_file", self.settings.key_file), ("ssh_config", self.settings.ssh_config)):
            if path is not None:
                check_path(path, field)
                if not path.is_file():
                    raise UsageProblem(field, f"{path} is not there; expected a file on this machine")

    def host_variables(self, host: HostEntry) -> dict[str, Any]:
        """Address, and user, port and key where they were given; a Python without the round trip of a discovery."""
        return {**self.access.ansible_variables(host), "ansible_python_interpreter": PYTHON}

    def ssh_argv(self, host: HostEntry, remote_command: str) -> list[str]:
        """Command line that runs `remote_command`, a line for the remote shell, on `host`; it never asks."""
        return self.access.argv(host, remote_command)

    def client_argv(self, host: HostEntry, *words: str) -> list[str]:
        """The client, started through ssh."""
        program, home = remote_path(f"{host.client_home}/monkey-client.pyz"), remote_path(host.client_home)
        return self.ssh_argv(host, f"exec {PYTHON} {program} {shlex.join(words)} --home {home}")


KIND = SshProvider
