"""Routes of providers: shown, looked at, added with confirmed host keys, checked, removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from monkey.api.models import DrainBody, ProbeBody, ProviderBody
from monkey.core.daemon import Core
from monkey.core.livehost import LiveHost
from monkey.errors import UsageProblem
from monkey.names import did_you_mean
from monkey.providers import Provider, confirm, pin, probe_all


def providers_router(core: Core) -> APIRouter:
    """Routes below ``/v1/providers``."""
    router = APIRouter()

    @router.get("")
    async def providers() -> dict[str, Any]:
        return {"providers": [show(core, provider) for provider in core.book.all()]}

    @router.get("/{name}")
    async def provider(name: str) -> dict[str, Any]:
        return show(core, core.book.get(name))

    @router.post("/probe")
    async def look(body: ProbeBody) -> dict[str, Any]:
        results = await asyncio.to_thread(
            probe_all, body.hosts, _path(body.key_file), _path(body.ssh_config), core.home.known_hosts
        )
        keys = ("host", "fingerprint", "key_type", "error", "python")
        return {"hosts": [{key: getattr(result, key) for key in keys} for result in results]}

    @router.post("")
    async def add(body: ProviderBody) -> dict[str, Any]:
        hosts = [host.host for host in body.hosts]
        settings: dict[str, Any] = {
            "hosts": hosts or None,
            "key_file": body.key_file,
            "ssh_config": body.ssh_config,
            "slots": body.slots,
        }
        core.book.check(body.name, body.type, **settings)
        if hosts:
            seen = await asyncio.to_thread(
                probe_all, hosts, _path(body.key_file), _path(body.ssh_config), core.home.known_hosts
            )
            pin(core.home, confirm(seen, {host.host: host.fingerprint or "" for host in body.hosts}))
        added = core.book.add(body.name, body.type, **settings)
        core.board.load()
        await core.board.check(added)
        broken = [host for host in core.board.all(added.name) if host.facts is None]
        if broken:
            # Nothing half-added: a provider whose hosts cannot be used is not one.
            core.book.remove(added.name)
            core.board.forget(added.name)
            raise UsageProblem("hosts", broken[0].message)
        return show(core, added)

    @router.post("/{name}/check")
    async def check(name: str) -> dict[str, Any]:
        checked = core.book.get(name)
        core.board.load()
        await core.board.check(checked)
        return show(core, checked)

    @router.post("/{name}/hosts/{host}/drain")
    async def drain(name: str, host: str, body: DrainBody) -> dict[str, Any]:
        core.board.drain(_host(core, name, host), body.reason)
        return show(core, core.book.get(name))

    @router.post("/{name}/hosts/{host}/resume")
    async def resume(name: str, host: str) -> dict[str, Any]:
        live = _host(core, name, host)
        if live.drained is None:
            raise UsageProblem("host", f"{host} of provider {name} is not drained")
        core.board.resume(live)
        return show(core, core.book.get(name))

    @router.delete("/{name}")
    async def remove(name: str) -> dict[str, Any]:
        left = await core.provider_removed(name)
        return {"removed": name, "left": left}

    return router


def show(core: Core, provider: Provider) -> dict[str, Any]:
    """A provider as the API shows it."""
    hosts = []
    for entry in provider.hosts():
        live = core.board.get(provider.name, entry.name)
        facts = (live.facts if live else None) or {}
        hosts.append(
            {
                "name": entry.name,
                "address": entry.address,
                "user": entry.user,
                "port": entry.port,
                "state": live.state if live else "unknown",
                "message": live.message if live else "",
                **{key: facts.get(key) for key in ("cpus", "gpus", "memory_mb", "disk_free_mb", "python", "hostname")},
                "running": core.live.use(f"{provider.name}/{entry.name}").jobs,
                "drained": live.drained.why if live and live.drained else None,
                "failures": live.failures if live else 0,
                "max_jobs": entry.slots,
                "machine": live.machine if live else None,
            }
        )
    return {
        "name": provider.name,
        "type": provider.kind,
        "playbook": f"monkey.runner.{provider.playbook}",
        "hosts": hosts,
    }


def _host(core: Core, provider: str, name: str) -> LiveHost:
    names = [entry.name for entry in core.book.get(provider).hosts()]
    live = core.board.get(provider, name)
    if live is None:
        hint = did_you_mean(name, names) or f"; it has {', '.join(names) or 'none'}"
        raise UsageProblem("host", f"provider {provider} has no host {name!r}{hint}")
    return live


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
