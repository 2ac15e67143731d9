"""The options of every ssh that Monkey starts, Ansible's and its own: built here and nowhere else.

The user's own ssh_config holds (ProxyJump, User, agent, aliases); what is here comes on top of it and wins: which host
keys are trusted, and when a silent connection counts as dead.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from monkey.errors import UsageProblem
from monkey.providers.hosts import HostEntry

# A machine that vanishes without closing the connection is noticed after interval x count = 30 s; a short cut of the
# network is survived.
ALIVE_INTERVAL_S = 10
ALIVE_COUNT = 3
CONNECT_TIMEOUT_S = 10


@dataclass(frozen=True)
class SshAccess:
    """How the machines of a provider are reached: pinned host keys, and what the user named."""

    known_hosts: Path
    key_file: Path | None = None
    ssh_config: Path | None = None

    def options(self, host: HostEntry, *, strict: str = "yes", known_hosts: Path | None = None) -> list[str]:
        """Options that hold for every connection to `host`, without user, port, key and address.

        Args:
            strict: value of StrictHostKeyChecking: `yes`, or `accept-new` into a file that is thrown away.
            known_hosts: that file; else the pinned keys.

        Raises:
            UsageProblem: when a path cannot be written in an option of ssh.
        """
        if strict not in {"yes", "accept-new"}:
            raise ValueError(f"host keys are always checked, not {strict!r}")
        trusted = _quoted(known_hosts or self.known_hosts, "MONKEY_HOME")
        config = ["-F", _plain(self.ssh_config, "ssh_config")] if self.ssh_config else []
        # With a key named, the agent's other keys are not offered: servers refuse after a few.
        identities = {"IdentitiesOnly": "yes"} if self.key_file else {}
        settings = {
            "UserKnownHostsFile": trusted,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": strict,
            "HostKeyAlias": host.host_key_alias,
            # Nothing else may vouch for a host or add keys, whatever ssh_config says. (OpenSSH 8.5 and newer.)
            "CheckHostIP": "no",
            "HashKnownHosts": "no",
            "KnownHostsCommand": "none",
            "UpdateHostKeys": "no",
            "VerifyHostKeyDNS": "no",
            "ServerAliveInterval": str(ALIVE_INTERVAL_S),
            "ServerAliveCountMax": str(ALIVE_COUNT),
            **identities,
        }
        return [*config, *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]

    def argv(
        self, host: HostEntry, remote_command: str, *, strict: str = "yes", known_hosts: Path | None = None
    ) -> list[str]:
        """The whole command line of an ssh that runs `remote_command` (for the remote shell) and never asks."""
        own = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_TIMEOUT_S),
            # A connection of its own: through a shared one no key is checked, and it ends with the other.
            "ControlMaster": "no",
            "ControlPath": "none",
            "ClearAllForwardings": "yes",
            "EscapeChar": "none",
        }
        if host.port:
            own["Port"] = str(host.port)
        if host.user:
            own["User"] = host.user
        if self.key_file:
            own["IdentityFile"] = _quoted(self.key_file, "key_file")
        return [
            "ssh",
            "-T",
            *self.options(host, strict=strict, known_hosts=known_hosts),
            *(part for key, value in own.items() for part in ("-o", f"{key}={value}")),
            "--",
            host.address,
            remote_command,
        ]

    def ansible_variables(self, host: HostEntry) -> dict[str, str | int]:
        """The same for Ansible, as variables of the host; user, port and key only where they were given."""
        variables: dict[str, str | int] = {"ansible_connection": "ssh", "ansible_host": host.address}
        if host.user:
            variables["ansible_user"] = host.user
        if host.port:
            variables["ansible_port"] = host.port
        if self.key_file:
            # Ansible puts the quotes around it itself.
            variables["ansible_ssh_private_key_file"] = _quoted(self.key_file, "key_file").strip('"')
        variables["ansible_ssh_common_args"] = shlex.join(self.options(host))
        return variables


def remote_path(path: str) -> str:
    """`path` as a word of a remote shell, where a leading `~/` still means the home folder of the user there."""
    if path.startswith("~/"):
        return "~/" + shlex.quote(path[2:])
    return shlex.quote(path)


def check_path(path: Path, field: str) -> None:
    """Refuse a path that ssh's options have no way to write (ssh_config(5): quotes, `${…}`).

    Raises:
        UsageProblem: naming `field`.
    """
    bad = [char for char in str(path) if char in '"\\$' or ord(char) < 32]
    if bad:
        raise UsageProblem(
            field, f"{str(path)!r} holds {bad[0]!r}, which ssh's options cannot express; use another path"
        )


def _plain(path: Path, field: str) -> str:
    check_path(path, field)
    return str(path)


def _quoted(path: Path, field: str) -> str:
    # In double quotes for the blanks; %% is a per cent sign (ssh_config(5), TOKENS).
    return '"{}"'.format(_plain(path, field).replace("%", "%%"))
