"""The pinned host keys: MONKEY_HOME/known_hosts, one `name type key` line for each machine."""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path

from monkey.providers.private_file import write_private

_writing = threading.Lock()


def fingerprint(line: str) -> str:
    """`SHA256:…` of a known_hosts line, as `ssh-keygen -l` shows it; "" when the line is none."""
    try:
        blob = base64.b64decode(line.split()[2], validate=True)
    except (IndexError, binascii.Error):
        return ""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_type(line: str) -> str:
    """The key's type in ssh's short words: ED25519, RSA, ECDSA."""
    words = line.split()
    return (
        words[1].removeprefix("sk-").removeprefix("ssh-").split("-")[0].split("@")[0].upper() if len(words) > 2 else ""
    )


def pinned_lines(known_hosts: Path, alias: str) -> list[str]:
    """The lines that pin keys for `alias`; [] when the file is not there."""
    return [line for line in _lines(known_hosts) if line.split()[0] == alias]


def replace_pins(known_hosts: Path, lines: Iterable[str]) -> None:
    """Pin these lines; what was pinned for the same names before goes."""
    new = [line.strip() for line in lines]
    names = {line.split()[0] for line in new}
    with _writing:
        kept = [line for line in _lines(known_hosts) if line.split()[0] not in names]
        _write(known_hosts, [*kept, *new])


def remove_pins(known_hosts: Path, aliases: Iterable[str]) -> None:
    """Forget the keys of these names."""
    names = set(aliases)
    with _writing:
        lines = _lines(known_hosts)
        kept = [line for line in lines if line.split()[0] not in names]
        if kept != lines:
            _write(known_hosts, kept)


def _lines(known_hosts: Path) -> list[str]:
    try:
        text = known_hosts.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _write(known_hosts: Path, lines: list[str]) -> None:
    write_private(known_hosts, "".join(f"{line}\n" for line in lines))
