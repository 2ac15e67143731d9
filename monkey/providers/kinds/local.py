"""Provider `local`: this machine, without ssh, with the same roles and the same client as every other."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from pydantic import Field

from monkey.providers.base import Provider, ProviderSettings
from monkey.providers.hosts import HostEntry

LOCALHOST = "localhost"


class LocalSettings(ProviderSettings):
    """Keys of a `local` provider."""

    slots: Annotated[int, Field(strict=True, ge=1)] | None = None


class LocalProvider(Provider):
    """This machine. It is there without an entry; one in providers.yml called `local` may set its `slots`."""

    kind = "local"
    settings_type = LocalSettings
    settings: LocalSettings

    def hosts(self) -> list[HostEntry]:
        """One host: `localhost`."""
        return [
            HostEntry(LOCALHOST, LOCALHOST, slots=self.settings.slots, client_home=str(self.home.client)),
        ]

    def host_variables(self, host: HostEntry) -> dict[str, Any]:
        """Connection `local`, and the driver's own Python.

        Of all Pythons here only that one is known to be there and new enough; /usr/bin/python3 may be missing or old.
        """
        return {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}

    def client_argv(self, host: HostEntry, *words: str) -> list[str]:
        """The client, started directly."""
        home = host.client_home
        return [sys.executable, f"{home}/monkey-client.pyz", *words, "--home", home]


KIND = LocalProvider
