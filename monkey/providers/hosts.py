"""A machine of a provider, and how a person writes one down."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from monkey.errors import UsageProblem

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}\$?")
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_EXPECTED = "expected user@host:port, user@[IPv6]:port or a name from your ssh_config"
SSH_PORT = 22


@dataclass(frozen=True)
class HostEntry:
    """A machine of a provider.

    Attributes:
        name: the name in inventories, tables and `--instance`; unique within its provider.
        address: host name, IP address or alias of the user's ssh_config.
        user: login name, or None: ssh_config decides.
        port: or None: ssh_config decides.
        slots: how many jobs may run at once, or None: as many as CPUs, GPUs and memory allow.
        client_home: folder of the client on the machine; a leading `~/` is that machine's home folder.
        key_file: private key that is offered to it, where one was named; only for explaining why it was refused.
        known_hosts: file that its host key is pinned in; only for showing the pinned one beside another.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    slots: int | None = None
    client_home: str = "~/.monkey-client/default"
    key_file: Path | None = field(default=None, compare=False, repr=False)
    known_hosts: Path | None = field(default=None, compare=False, repr=False)

    @property
    def host_key_alias(self) -> str:
        """The name under which the machine's host key is pinned.

        ssh compares names in known_hosts in lower case. With a name of our own (`HostKeyAlias`) the pin holds for this
        machine however ssh_config gets to it, and not for the next one that is given the same address.
        """
        return self.name.lower()

    def __str__(self) -> str:
        """As a person would write it: `user@host:port`."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{user}{address}{port}"


def parse_host(text: str) -> HostEntry:
    """Read `user@host:port`, `user@[IPv6]:port`, a bare IPv6 address, or an alias of ssh_config.

    Raises:
        UsageProblem: for anything else, naming `host`.
    """
    user, at, rest = text.strip().rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _wrong(text, "the user name is not one")
    if rest.startswith("["):
        address, bracket, tail = rest[1:].partition("]")
        if not bracket or not _is_ipv6(address) or (tail and not tail.startswith(":")):
            raise _wrong(text, "the brackets do not hold an IPv6 address")
        port_text = tail[1:] if tail else None
    elif _is_ipv6(rest):
        address, port_text = rest, None
    else:
        address, colon, tail = rest.partition(":")
        port_text = tail if colon else None
        if not _ADDRESS.fullmatch(address):
            raise _wrong(text, "the host name is not one")
    port = None
    if port_text is not None:
        if not re.fullmatch(r"[0-9]{1,5}", port_text) or not 1 <= int(port_text) <= 65535:
            raise _wrong(text, "the port is not a number from 1 to 65535")
        port = int(port_text)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", address).strip("-")
    if port not in {None, SSH_PORT}:
        name = f"{name}-{port}"
    return HostEntry(name=name[-64:], address=address, user=user or None, port=port)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    # A zone (fe80::1%eth0) goes to ssh as it is, so only what an interface can be called.
    return re.fullmatch(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?", text) is not None


def _wrong(text: str, what: str) -> UsageProblem:
    return UsageProblem("host", f"{text!r}: {what}; {_EXPECTED}")
