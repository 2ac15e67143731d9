"""providers.yml: the providers of a main node."""

from __future__ import annotations

import threading
from typing import Any

import yaml

from monkey.errors import UsageProblem
from monkey.names import did_you_mean
from monkey.paths import Home
from monkey.providers.base import Provider, make
from monkey.providers.pins import remove_pins
from monkey.providers.private_file import write_private

LOCAL = "local"
_FILE = "providers.yml"


class ProviderBook:
    """The providers in MONKEY_HOME/providers.yml; looked at at each call, so an edit by hand holds at once.

    Every method raises UsageProblem when the file is broken, naming the key, or line and column.
    """

    def __init__(self, home: Home) -> None:
        self.home = home
        self._changing = threading.Lock()
        self._seen: tuple[tuple[int, ...], dict[str, Provider]] | None = None

    def names(self) -> list[str]:
        """All names; `local` first."""
        return list(self._read())

    def all(self) -> list[Provider]:
        """All providers; `local` first."""
        return list(self._read().values())

    def get(self, name: str) -> Provider:
        """The provider called `name`.

        Raises:
            UsageProblem: when there is none, with the nearest name.
        """
        found = self._read()
        if name not in found:
            near = did_you_mean(name, found) or f"; there are {', '.join(found)}"
            raise UsageProblem("provider", f"unknown provider {name!r}{near}")
        return found[name]

    def check(self, name: str, kind: str, **settings: Any) -> Provider:
        """The provider that `add` would make; nothing is written.

        Raises:
            UsageProblem: naming the wrong key, or when the name is taken.
        """
        provider = make(self.home, name, kind, {key: value for key, value in settings.items() if value is not None})
        # inventory/<name>.yml would be the same file where case does not count.
        for taken in self._read():
            if taken.lower() == name.lower():
                raise UsageProblem("name", f"provider {taken} is there already; remove it first or take another name")
        provider.added()
        return provider

    def add(self, name: str, kind: str, **settings: Any) -> Provider:
        """Write a provider down, and its inventory.

        Raises:
            UsageProblem: as `check` does; nothing is changed then.
            OSError: when MONKEY_HOME cannot be written.
        """
        with self._changing:
            provider = self.check(name, kind, **settings)
            inventory = provider.write_inventory()
            entry = provider.settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
            try:
                self._write([*self._entries(), {"name": name, "type": kind, **entry}])
            except OSError:
                inventory.unlink(missing_ok=True)
                raise
        return provider

    def remove(self, name: str) -> None:
        """Take a provider out, with its inventory and the host keys that no other provider needs.

        Raises:
            UsageProblem: when there is none of that name, or it is `local`.
        """
        with self._changing:
            if name == LOCAL:
                raise UsageProblem("provider", "local is always there and cannot be removed")
            gone = self.get(name)
            self._write([entry for entry in self._entries() if entry["name"] != name])
            self.home.inventory(name).unlink(missing_ok=True)
            needed = {host.host_key_alias for provider in self.all() for host in provider.hosts()}
            remove_pins(self.home.known_hosts, {host.host_key_alias for host in gone.hosts()} - needed)

    def _read(self) -> dict[str, Provider]:
        # Parsing a long file takes longer than a job's submission may; it is the same file when all of these are.
        try:
            status = self.home.providers.stat()
            mark: tuple[int, ...] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        except FileNotFoundError:
            mark = ()
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, self._parse())
        return dict(self._seen[1])

    def _parse(self) -> dict[str, Provider]:
        found = {LOCAL: make(self.home, LOCAL, LOCAL, {})}
        for number, entry in enumerate(self._entries()):
            name = entry.get("name", f"providers[{number}]")
            where = f"{_FILE}: {name}."
            rest = {str(key): value for key, value in entry.items() if key not in {"name", "type"}}
            provider = make(self.home, entry.get("name"), entry.get("type"), rest, where)
            if provider.name in found and provider.name != LOCAL:
                raise UsageProblem(f"{where}name", "this name is there twice")
            if provider.name == LOCAL and provider.kind != LOCAL:
                raise UsageProblem(f"{where}type", "expected local: this name is this machine's")
            found[provider.name] = provider
        return found

    def _entries(self) -> list[dict[str, Any]]:
        try:
            content = yaml.safe_load(self.home.providers.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except UnicodeDecodeError as error:
            raise UsageProblem(_FILE, f"expected UTF-8 text: {error.reason}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise UsageProblem(f"{_FILE}{place}", error.problem or "broken YAML") from error
        except yaml.YAMLError as error:
            raise UsageProblem(_FILE, str(error)) from error
        if content is None:
            return []
        if not isinstance(content, dict):
            raise UsageProblem(_FILE, "expected `providers:` and a list below it")
        unknown = [str(key) for key in content if key != "providers"]
        if unknown:
            near = did_you_mean(unknown[0], ["providers"]) or "; expected providers"
            raise UsageProblem(f"{_FILE}: {unknown[0]}", f"unknown key{near}")
        entries = content.get("providers") or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise UsageProblem(f"{_FILE}: providers", "expected a list of entries with name and type")
        return entries

    def _write(self, entries: list[dict[str, Any]]) -> None:
        text = yaml.safe_dump({"providers": entries}, sort_keys=False, allow_unicode=True)
        write_private(self.home.providers, text)
