"""The package sources that a host's pip.conf and PIP_* variables name, in a form that uv reads.

uv does not read pip's configuration (docs.astral.sh/uv/pip/compatibility). A site that has its packages behind a mirror
says so in pip.conf, and that has to hold whichever of the two tools installs.
"""

from __future__ import annotations

import configparser
import json
import os
from dataclasses import dataclass, field
from typing import Mapping

# Where uv looks for its own sources; with any of these the user has configured uv, and pip's words do not count for it.
_UV_VARIABLES = (
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_CONFIG_FILE",
)
_TRUE = ("1", "true", "yes", "on", "y", "t")


@dataclass
class Sources:
    """Where packages come from, and the file of certificates to trust. All empty: the default index."""

    index_url: str | None = None
    extra_index_urls: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    trusted_hosts: list[str] = field(default_factory=list)
    no_index: bool = False
    cert: str | None = None

    def as_uv_toml(self) -> str:
        """Return the text of a uv.toml that says the same; addresses may hold passwords, so it is never an argument."""
        lines = ["[pip]"]
        if self.index_url:
            lines.append(f"index-url = {json.dumps(self.index_url)}")
        if self.extra_index_urls:
            lines.append(f"extra-index-url = {json.dumps(self.extra_index_urls)}")
            # pip takes the best version of all indexes; uv by default only looks into the first that has the package.
            lines.append('index-strategy = "unsafe-best-match"')
        if self.find_links:
            lines.append(f"find-links = {json.dumps(self.find_links)}")
        if self.no_index:
            lines.append("no-index = true")
        top = [f"allow-insecure-host = {json.dumps(self.trusted_hosts)}"] if self.trusted_hosts else []
        return "\n".join([*top, *lines]) + "\n"


def uv_is_configured(env: Mapping[str, str]) -> bool:
    """Tell whether the user has configured uv itself (its variables or one of its files)."""
    if any(env.get(name) for name in _UV_VARIABLES):
        return True
    config = env.get("XDG_CONFIG_HOME") or os.path.join(_home(env), ".config")
    return any(os.path.exists(path) for path in (os.path.join(config, "uv", "uv.toml"), "/etc/uv/uv.toml"))


def pip_sources(env: Mapping[str, str], interpreter_prefix: str | None = None) -> Sources:
    """Read pip's configuration as pip does (pip.pypa.io, "Configuration"): files from global to user, then variables.

    Of each file the section ``[install]`` goes before ``[global]``. A file that cannot be parsed is passed over: pip
    itself will say what is wrong with it.
    """
    said: dict[str, str] = {}
    for path in _files(env, interpreter_prefix):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                said.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for name, value in env.items():
        if name.startswith("PIP_") and value:
            said[name[len("PIP_") :].lower().replace("_", "-")] = value
    return Sources(
        index_url=said.get("index-url") or None,
        extra_index_urls=said.get("extra-index-url", "").split(),
        find_links=said.get("find-links", "").split(),
        trusted_hosts=said.get("trusted-host", "").split(),
        no_index=said.get("no-index", "").strip().lower() in _TRUE,
        cert=said.get("cert") or None,
    )


def _files(env: Mapping[str, str], interpreter_prefix: str | None) -> list[str]:
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = _home(env)
    config_dirs = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    paths = [os.path.join(folder, "pip", "pip.conf") for folder in config_dirs if folder]
    paths.append("/etc/pip.conf")
    paths.append(os.path.join(home, ".pip", "pip.conf"))
    paths.append(os.path.join(env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "pip", "pip.conf"))
    if interpreter_prefix:
        paths.append(os.path.join(interpreter_prefix, "pip.conf"))
    if named:
        paths.append(named)
    return paths


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or os.path.expanduser("~")
