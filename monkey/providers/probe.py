"""A first look at machines that are to be added: their host keys, and whether Monkey could work there.

It connects as every later connection will, through the user's own ssh configuration, but trusts the key it is shown and
keeps it in a file of its own, so that a person can say yes or no to it. `pin` writes down what was confirmed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from monkey.errors import UsageProblem
from monkey.paths import Home
from monkey.providers.failures import PYTHON_NEEDED, classify_unreachable
from monkey.providers.hosts import HostEntry, parse_host
from monkey.providers.pins import fingerprint, key_type, pinned_lines, replace_pins
from monkey.providers.ssh_options import CONNECT_TIMEOUT_S, SshAccess, check_path

_AT_ONCE = 16
# Several hops of ProxyJump may each take the time of a connection.
_PROBE_TIMEOUT_S = 3 * CONNECT_TIMEOUT_S
_MARK = "monkey-probe"
# The login shell may be any; all of them pass a quoted word on to sh. Without python3 the mark stands alone.
_LOOK = f"sh -c {shlex.quote(f'echo {_MARK} $(command -v python3 >/dev/null && python3 -V 2>&1)')}"


@dataclass(frozen=True)
class ProbeResult:
    """What a machine showed.

    Attributes:
        host: as it was asked for.
        fingerprint: `SHA256:…` of its host key, "" when none was shown.
        key_type: ED25519, RSA, ECDSA; "" with no key.
        known_hosts_line: what `pin` would write; "" with no key.
        error: None, or one sentence that names the host and what to do next.
        python: version of its python3, such as `3.11.2`; "" when unknown.
    """

    host: str
    fingerprint: str = ""
    key_type: str = ""
    known_hosts_line: str = ""
    error: str | None = None
    python: str = ""


def probe(
    host: str, key_file: Path | None = None, ssh_config: Path | None = None, pinned: Path | None = None
) -> ProbeResult:
    """Connect to `host`, take its host key and look for Python.

    Args:
        host: `user@host:port`, `user@[IPv6]:port` or an alias of ssh_config.
        key_file: private key to offer, or None: the agent's and ssh_config's.
        ssh_config: file to use instead of ~/.ssh/config, or None.
        pinned: known_hosts whose pins count: a machine that shows another key than its pinned one is an error.

    Returns:
        ProbeResult; whatever goes wrong with the machine is its `error`.

    Raises:
        UsageProblem: when `host` is not one, or `key_file` or `ssh_config` cannot be used.
    """
    entry = parse_host(host)
    check_files(key_file, ssh_config)
    with tempfile.TemporaryDirectory(prefix="monkey-probe-") as folder:
        seen = Path(folder) / "known_hosts"
        if pinned:
            seen.write_text("".join(f"{line}\n" for line in pinned_lines(pinned, entry.host_key_alias)))
        access = SshAccess(seen, key_file, ssh_config)
        error, python = _connect(entry, access)
        lines = pinned_lines(seen, entry.host_key_alias)
    line = lines[-1] if lines else ""
    if error is None and not line:
        error = f"{entry} showed no host key: look at `ssh -v {entry.address} true`"
    return ProbeResult(host, fingerprint(line), key_type(line), line, error, python)


def probe_all(
    hosts: Iterable[str], key_file: Path | None = None, ssh_config: Path | None = None, pinned: Path | None = None
) -> list[ProbeResult]:
    """`probe` for several machines at once; results in the same order.

    Raises:
        UsageProblem: as `probe` does.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda host: probe(host, key_file, ssh_config, pinned), list(hosts)))


def check_files(key_file: Path | None, ssh_config: Path | None) -> None:
    """Refuse a key or an ssh_config that ssh could not use.

    Raises:
        UsageProblem: naming `key_file` or `ssh_config`.
    """
    for field, path in (("key_file", key_file), ("ssh_config", ssh_config)):
        if path is None:
            continue
        check_path(path, field)
        if not path.is_file():
            raise UsageProblem(field, f"{path} is not there; expected a file on this machine")
        if not os.access(path, os.R_OK):
            raise UsageProblem(field, f"{path} cannot be read by this user")
    if key_file is not None:
        status = key_file.stat()
        # As ssh itself decides (authfile.c, sshkey_perm_ok).
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            raise UsageProblem(
                "key_file", f"others can read {key_file}, so ssh will not use it: `chmod 600 {key_file}`"
            )


def confirm(results: Iterable[ProbeResult], fingerprints: Mapping[str, str]) -> list[ProbeResult]:
    """The results, when each host was reached and shows the very key that a person said yes to.

    Args:
        fingerprints: by `host`, as it was asked for.

    Raises:
        UsageProblem: naming the first host that was not reached, or that shows another key.
    """
    confirmed = list(results)
    for result in confirmed:
        if result.error is not None:
            raise UsageProblem("hosts", result.error)
        wanted = fingerprints.get(result.host)
        if wanted != result.fingerprint:
            raise UsageProblem(
                "hosts",
                f"{result.host} shows the key {result.fingerprint}, confirmed was {wanted or 'none'}; look again",
            )
    return confirmed


def pin(home: Home, results: Iterable[ProbeResult]) -> None:
    """Write the host keys of these results, which a person has confirmed, into MONKEY_HOME/known_hosts.

    A key pinned before for the same machine is replaced.

    Raises:
        UsageProblem: when one has an error or no key; nothing is written then.
        OSError: when the file cannot be written; it is as it was then.
    """
    confirmed = list(results)
    for result in confirmed:
        if result.error is not None or not result.known_hosts_line:
            raise UsageProblem("hosts", result.error or f"{result.host} showed no host key")
    replace_pins(home.known_hosts, [result.known_hosts_line for result in confirmed])


def _connect(entry: HostEntry, access: SshAccess) -> tuple[str | None, str]:
    argv = access.argv(entry, _LOOK, strict="accept-new")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return "this machine has no ssh client: install openssh-client here", ""
    except subprocess.TimeoutExpired:
        return classify_unreachable("timed out", entry), ""
    match = re.search(rf"^{_MARK}(?: Python ([0-9.]+)\S*)?\s*$", done.stdout, re.M)
    if not match:
        if done.returncode == 255:
            return classify_unreachable(done.stderr, entry, access.key_file, access.known_hosts), ""
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return f"{entry} lets you in but gives no shell ({said[-1] if said else 'no word'}): ask its owner for one", ""
    python = match[1] or ""
    needed = ".".join(map(str, PYTHON_NEEDED))
    if not python:
        return f"{entry} has no python3: install Python {needed} or newer there", ""
    if tuple(int(part) for part in python.split(".")[:2] if part) < PYTHON_NEEDED:
        return f"{entry} has Python {python}; {needed} or newer is needed: install it there as python3", python
    return None, python
