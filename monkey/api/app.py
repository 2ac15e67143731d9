"""The API's application: versions, errors, and the routes of the core itself."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from monkey.api.events import events_router
from monkey.api.files import files_router
from monkey.api.jobs import jobs_router
from monkey.api.providers import providers_router
from monkey.api.scheduler import scheduler_router
from monkey.api.state import state_router
from monkey.core.daemon import Core
from monkey.errors import UsageProblem
from monkey.store import StoreFullError
from monkey.version import __version__

VERSION_HEADER = "x-monkey-version"


def make_app(core: Core) -> FastAPI:
    """The application for one core."""
    app = FastAPI(title="Monkey", version=__version__, docs_url="/docs", openapi_url="/v1/openapi.json")
    app.include_router(files_router(core), prefix="/v1/fs")
    app.include_router(providers_router(core), prefix="/v1/providers")
    app.include_router(jobs_router(core), prefix="/v1")
    app.include_router(scheduler_router(core), prefix="/v1/scheduler")
    app.include_router(state_router(core), prefix="/v1/state")
    app.include_router(events_router(core), prefix="/v1/events")

    @app.middleware("http")
    async def same_version(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        theirs = request.headers.get(VERSION_HEADER)
        # A client of another version may still ask how the core is, and stop it.
        if theirs and theirs != __version__ and request.url.path not in {"/v1/status", "/v1/stop"}:
            return problem(409, "version", f"the core is version {__version__}, this client is version {theirs}")
        return await call_next(request)

    @app.exception_handler(UsageProblem)
    async def usage(_request: Request, error: UsageProblem) -> Response:
        return problem(404 if getattr(error, "missing", False) else 400, error.field, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return problem(400, where or "request", str(first["msg"]))

    @app.exception_handler(StoreFullError)
    async def full(_request: Request, error: StoreFullError) -> Response:
        return problem(507, "disk", str(error))

    @app.exception_handler(OSError)
    async def disk(_request: Request, error: OSError) -> Response:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise error
        return problem(507, "disk", f"the main node's disk is full: free some space for {core.home.root}")

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        return core.status()

    @app.post("/v1/stop")
    async def stop() -> dict[str, Any]:
        core.stop_soon()
        return core.status()

    return app


def problem(code: int, field: str, message: str) -> JSONResponse:
    """An error as every route answers it."""
    return JSONResponse({"error": {"field": field, "message": message}}, status_code=code)
