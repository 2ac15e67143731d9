"""Routes of the scheduler: its policy, what waits for what, and what hosts have free."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from monkey.api.models import PolicyBody
from monkey.api.providers import show
from monkey.core.daemon import Core
from monkey.scheduler import POLICIES


def scheduler_router(core: Core) -> APIRouter:
    """Routes below ``/v1/scheduler``."""
    router = APIRouter()

    @router.get("")
    async def info() -> dict[str, Any]:
        return _info(core)

    @router.put("")
    async def choose(body: PolicyBody) -> dict[str, Any]:
        core.dispatcher.set_policy(body.policy)
        core.wake()
        return _info(core)

    return router


def _info(core: Core) -> dict[str, Any]:
    return {
        "policy": core.dispatcher.policy,
        "policies": [{"name": one.name, "description": one.description} for one in POLICIES.values()],
        "queued": core.jobs.counts().get("QUEUED", 0),
        "waiting": core.dispatcher.waiting(),
        "hosts": [
            {**host, "provider": provider.name}
            for provider in core.book.all()
            for host in show(core, provider)["hosts"]
        ],
    }
