"""What a failed connection means, in one sentence that names the host and what to do next.

The texts are those of OpenSSH's client (8.0 to 9.9; sshconnect.c, ssh.c, readpass.c) and of Ansible's ssh connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monkey.providers.hosts import HostEntry
from monkey.providers.pins import fingerprint, key_type, pinned_lines
from monkey.providers.ssh_options import CONNECT_TIMEOUT_S

PYTHON_NEEDED = (3, 8)
_NO_IDENTITY = r"(?:no such identity: |Identity file )(.+?)(?:: No such file| not accessible)"
_REPIN = "if you know why, pin the new key: `monkey provider remove` and `monkey provider add`"


@dataclass(frozen=True)
class _Failure:
    text: str
    host: HostEntry
    key_file: Path | None
    known_hosts: Path | None

    def found(self, pattern: str) -> str:
        match = re.search(pattern, self.text)
        return match[1] if match else ""

    def ssh_copy_id(self) -> str:
        key = f" -i {self.key_file}.pub" if self.key_file else ""
        port = f" -p {self.host.port}" if self.host.port else ""
        user = f"{self.host.user}@" if self.host.user else ""
        return f"`ssh-copy-id{key}{port} {user}{self.host.address}`"


def _changed(failure: _Failure) -> str:
    offered = failure.found(r"(SHA256:[A-Za-z0-9+/]+)") or "another one"
    pinned = pinned_lines(failure.known_hosts, failure.host.host_key_alias) if failure.known_hosts else []
    known = f" pinned is {', '.join(f'{key_type(line)} {fingerprint(line)}' for line in pinned)}," if pinned else ""
    kind = failure.found(r"fingerprint for the (\S+) key") or failure.found(r"Host key for (\S+) has changed") or "key"
    return (
        f"the host key of {failure.host} has changed:{known} the host now shows {kind} {offered};"
        f" it may be another machine: ask its owner, and {_REPIN}"
    )


def _not_pinned(failure: _Failure) -> str:
    return f"no host key is pinned for {failure.host}: {_REPIN.removeprefix('if you know why, ')}"


def _refused_key(failure: _Failure) -> str:
    refused = failure.found(r"(\S+): Permission denied \(")
    # ssh names who was refused: another user than the entry's, or a jump host on the way.
    known = refused in {"", failure.host.address, f"{failure.host.user}@{failure.host.address}"}
    who = str(failure.host) if known else f"{failure.host} (as {refused})"
    if failure.found(r"(incorrect passphrase|passphrase)"):
        return f"{who}: the key {failure.key_file or ''} needs its passphrase: load it with `ssh-add` first".replace(
            "  ", " "
        )
    tried = f"the key {failure.key_file}" if failure.key_file else "every key of your agent and ssh_config"
    return f"{who} refused {tried}: let it in with {failure.ssh_copy_id()}, or name another with --key"


def _key_file(failure: _Failure) -> str:
    if failure.found(r"(UNPROTECTED PRIVATE KEY FILE|bad permissions|are too open)"):
        name = failure.key_file or failure.found(r"Permissions \d+ for '([^']+)'") or "the key"
        return f"{failure.host}: others can read {name}, so ssh will not use it: `chmod 600 {name}`"
    name = failure.key_file or failure.found(_NO_IDENTITY) or "the key"
    return f"{failure.host}: key file {name} is not there: name the private key with --key"


def _resolve(failure: _Failure) -> str:
    name = failure.found(r"Could not resolve hostname ([^\s:]+)") or failure.host.address
    return f"{failure.host}: the name {name} does not resolve: check it, or give it an entry in your ssh_config"


def _refused(failure: _Failure) -> str:
    port = failure.found(r"port (\d+): Connection refused")
    where = f"port {port}" if port else "its ssh port"
    return f"{failure.host} refused the connection at {where}: check that sshd runs there and that the port is right"


def _silent(failure: _Failure) -> str:
    return (
        f"{failure.host} does not answer (waited up to {CONNECT_TIMEOUT_S} s):"
        " check that it is up and that this machine can reach it (VPN, firewall, ProxyJump)"
    )


def _jump(failure: _Failure) -> str:
    why = failure.found(r"open failed: (?:connect failed: )?([^\r\n]+)") or "it closed the connection"
    why = why.strip().rstrip(":")
    return f"{failure.host} cannot be reached from its jump host ({why}): check ProxyJump and the address"


def _config(failure: _Failure) -> str:
    what = failure.found(r"((?:Can't open user config file|[^\n]*Bad configuration option|[^\n]*terminating,)[^\n]*)")
    return f"{failure.host}: ssh cannot read its configuration ({what.strip()}): correct your ssh_config"


def _disk(failure: _Failure) -> str:
    return f"the disk of {failure.host} is full: free some space there, in the home folder and in /tmp"


def _no_python(failure: _Failure) -> str:
    return f"{failure.host} has no python3: install Python {'.'.join(map(str, PYTHON_NEEDED))} or newer there"


def _closed(failure: _Failure) -> str:
    return f"{failure.host} closed the connection before it was up: look at sshd's log there (limits, AllowUsers, load)"


# The first that matches holds, so the particular comes before the general.
_KNOWN: tuple[tuple[str, Callable[[_Failure], str]], ...] = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed", _changed),
    (r"host key is known for|Host key verification failed", _not_pinned),
    (
        rf"UNPROTECTED PRIVATE KEY FILE|bad permissions|{_NO_IDENTITY}(?s:.*)Permission denied \(",
        _key_file,
    ),
    (r"No space left on device|Disk quota exceeded", _disk),
    (r"python3?: (?:command )?not found|python3?: No such file or directory|python3: inaccessible", _no_python),
    (r"Permission denied \([a-z,-]+\)|Too many authentication failures|No more authentication methods", _refused_key),
    (r"Can't open user config file|Bad configuration option|terminating, \d+ bad configuration", _config),
    (r"Could not resolve hostname|Name or service not known|Temporary failure in name resolution", _resolve),
    (r"channel \d+: open failed|stdio forwarding failed", _jump),
    (r"Connection refused", _refused),
    (
        r"[Tt]imed out|No route to host|Network is unreachable|Host is down|not responding|Timeout, server|Timeout \(",
        _silent,
    ),
    (r"Connection (?:closed|reset)|[Bb]roken pipe|closed by remote host|Shared connection to", _closed),
)


def classify_unreachable(
    msg: str, host: HostEntry | str, key_file: Path | None = None, known_hosts: Path | None = None
) -> str:
    """One sentence for what ssh or Ansible said about a host that was not reached.

    Args:
        msg: ssh's stderr, or the `msg` of Ansible's unreachable result.
        host: the machine; a text is only shown.
        key_file: the key that was offered, where one was named; else the host's own.
        known_hosts: the pinned keys, to show the pinned fingerprint when the host shows another; else the host's own.

    Returns:
        A sentence that names the host and the next thing to do; for a text that is not known, its last line.
    """
    entry = host if isinstance(host, HostEntry) else HostEntry(name=host, address=host)
    text = re.sub(r"\x1b\[[0-9;]*m", "", msg).replace("\\r\\n", "\n").replace("\\n", "\n").replace("\r", "")
    failure = _Failure(text, entry, key_file or entry.key_file, known_hosts or entry.known_hosts)
    for pattern, sentence in _KNOWN:
        if re.search(pattern, text):
            return sentence(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (
        f"{entry} was not reached: {lines[-1] if lines else 'ssh ended without a word'}; try `ssh {entry.address} true`"
    )
