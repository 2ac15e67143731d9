"""The providers: what machines there are and how they are reached. Nothing here changes a machine."""

from __future__ import annotations

from monkey.providers.base import Provider, kinds
from monkey.providers.book import ProviderBook
from monkey.providers.core_id import core_id
from monkey.providers.failures import classify_unreachable
from monkey.providers.hosts import HostEntry, parse_host
from monkey.providers.probe import ProbeResult, confirm, pin, probe, probe_all

__all__ = [
    "HostEntry",
    "ProbeResult",
    "Provider",
    "ProviderBook",
    "classify_unreachable",
    "confirm",
    "core_id",
    "kinds",
    "parse_host",
    "pin",
    "probe",
    "probe_all",
    "stream_argv",
]


def stream_argv(provider: Provider, host: HostEntry) -> list[str]:
    """Command line of the event stream of `host`: `provider.stream_argv(host)`."""
    return provider.stream_argv(host)
