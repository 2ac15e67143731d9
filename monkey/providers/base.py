"""What a provider is. Each kind is one module in `monkey.providers.kinds`; nothing here or in the book names one."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from monkey.errors import UsageProblem
from monkey.names import check_name, did_you_mean
from monkey.paths import Home
from monkey.providers.hosts import HostEntry
from monkey.providers.private_file import write_private


class ProviderSettings(BaseModel):
    """An entry of providers.yml, without `name` and `type`. Kinds add their keys; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Provider(ABC):
    """An entry of providers.yml.

    A kind is a module in `monkey.providers.kinds` with a subclass of this named `KIND`.
    """

    kind: ClassVar[str]
    settings_type: ClassVar[type[ProviderSettings]]
    playbook: ClassVar[str] = "launch_wave"
    """The collection's playbook that a wave on this provider runs."""

    def __init__(self, name: str, settings: ProviderSettings, home: Home) -> None:
        self.name = name
        self.settings = settings
        self.home = home

    @abstractmethod
    def hosts(self) -> list[HostEntry]:
        """The provider's machines, in the order of providers.yml."""

    @abstractmethod
    def host_variables(self, host: HostEntry) -> dict[str, Any]:
        """How Ansible reaches `host`: its `ansible_…` variables."""

    @abstractmethod
    def client_argv(self, host: HostEntry, *words: str) -> list[str]:
        """Command line that runs the client installed on `host` with these words and its `--home`."""

    def stream_argv(self, host: HostEntry) -> list[str]:
        """Command line of the event stream (docs/interfaces.md, "Stream"): JSON lines on stdin and stdout."""
        return self.client_argv(host, "stream")

    def host(self, name: str) -> HostEntry:
        """The machine called `name`.

        Raises:
            UsageProblem: when there is none, with the nearest name.
        """
        entries = {entry.name: entry for entry in self.hosts()}
        if name not in entries:
            near = did_you_mean(name, entries) or f"; it has {', '.join(entries) or 'none'}"
            raise UsageProblem("instance", f"provider {self.name} has no host {name!r}{near}")
        return entries[name]

    def added(self) -> None:  # noqa: B027 - most kinds have nothing to add
        """Called before the provider is written down: refuse here what pydantic cannot see (UsageProblem)."""

    def inventory(self) -> dict[str, Any]:
        """The inventory: every machine in group `all`, with what differs from machine to machine as its variables."""
        hosts: dict[str, dict[str, Any]] = {}
        for entry in self.hosts():
            variables = {**self.host_variables(entry), "monkey_client_home": entry.client_home}
            if entry.slots:
                variables["monkey_max_jobs"] = entry.slots
            hosts[entry.name] = variables
        shared = _shared(list(hosts.values()))
        return {
            "all": {
                "hosts": {name: {k: v for k, v in own.items() if k not in shared} for name, own in hosts.items()},
                "vars": {"monkey_provider": self.name, **shared},
            }
        }

    def write_inventory(self) -> Path:
        """Write `inventory/<name>.yml` and return its path.

        Raises:
            OSError: when it cannot be written.
        """
        path = self.home.inventory(self.name)
        text = yaml.dump(_data(self.inventory()), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
        head = f"# Written by monkey from providers.yml ({self.name}); changes here are lost.\n"
        write_private(path, head + text)
        return path


class _Text(str):
    """Text that Ansible must take as it is."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


# !unsafe: a path may hold {{ }}, and is no template (Ansible's "Advanced playbook syntax").
_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style="'"))


def _data(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_data(item) for item in value]
    return _Text(value) if isinstance(value, str) and "{" in value else value


def _shared(hosts: list[dict[str, Any]]) -> dict[str, Any]:
    """The variables that every host has with the same value, where there are two hosts or more."""
    if len(hosts) < 2:
        return {}
    first, *others = hosts
    return {key: value for key, value in first.items() if all(key in own and own[key] == value for own in others)}


@cache
def kinds() -> dict[str, type[Provider]]:
    """Every kind of provider by its name in `type`, from the modules in `monkey.providers.kinds`."""
    package = importlib.import_module("monkey.providers.kinds")
    found: dict[str, type[Provider]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        kind: type[Provider] = importlib.import_module(f"{package.__name__}.{module.name}").KIND
        found[kind.kind] = kind
    return found


def make(home: Home, name: object, kind: object, settings: dict[str, Any], where: str = "") -> Provider:
    """A provider from the parts of its entry.

    Args:
        where: put before the key in errors, such as `providers.yml: lab.`.

    Raises:
        UsageProblem: naming the first wrong key.
    """
    checked = check_name(name, f"{where}name")
    if not isinstance(kind, str) or kind not in kinds():
        near = did_you_mean(str(kind), kinds()) or f"; expected one of {', '.join(kinds())}"
        raise UsageProblem(f"{where}type", f"unknown type of provider {kind!r}{near}")
    maker = kinds()[kind]
    try:
        parsed = maker.settings_type.model_validate(settings)
    except ValidationError as error:
        raise _problem(error, where, list(maker.settings_type.model_fields)) from error
    return maker(checked, parsed, home)


def _problem(error: ValidationError, where: str, known: list[str]) -> UsageProblem:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        word = str(first["loc"][-1])
        near = did_you_mean(word, known) or f"; expected one of {', '.join(known)}"
        return UsageProblem(f"{where}{key}", f"unknown key {word!r}{near}")
    cause = first.get("ctx", {}).get("error")
    text = cause.message if isinstance(cause, UsageProblem) else first["msg"].removeprefix("Value error, ")
    return UsageProblem(f"{where}{key}", text[:1].lower() + text[1:] if text[1:2].islower() else text)
