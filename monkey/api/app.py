"""The API's application: versions, errors, and the routes of the core itself and of jobs."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse

from monkey.api.files import files_router
from monkey.api.models import PlanBody, Submission
from monkey.api.providers import providers_router
from monkey.core.daemon import Core
from monkey.errors import UsageProblem
from monkey.store import StoreFullError
from monkey.version import __version__

_FOLLOW_CHUNK_BYTES = 256 * 1024
VERSION_HEADER = "x-monkey-version"


def make_app(core: Core) -> FastAPI:
    """The application for one core."""
    app = FastAPI(title="Monkey", version=__version__, docs_url="/docs", openapi_url="/v1/openapi.json")
    app.include_router(files_router(core), prefix="/v1/fs")
    app.include_router(providers_router(core), prefix="/v1/providers")

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

    _job_routes(app, core)
    return app


def problem(code: int, field: str, message: str) -> JSONResponse:
    """An error as every route answers it."""
    return JSONResponse({"error": {"field": field, "message": message}}, status_code=code)


def _job_routes(app: FastAPI, core: Core) -> None:
    @app.get("/v1/jobs")
    async def jobs(
        state: str | None = None, provider: str | None = None, name: str | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        return {"jobs": core.jobs.listing(state=state, provider=provider, name=name, limit=limit)}

    @app.post("/v1/jobs")
    async def submit(
        body: Submission, idempotency_key: Annotated[str | None, Header()] = None
    ) -> dict[str, Any]:
        return core.submit(body, idempotency_key)

    @app.post("/v1/plan")
    async def plan(body: PlanBody) -> dict[str, Any]:
        return await core.plan(body)

    @app.get("/v1/jobs/{which}")
    async def job(which: str) -> dict[str, Any]:
        return core.jobs.find(which)

    @app.get("/v1/jobs/{which}/wait")
    async def wait(which: str, revision: int = 0, timeout_s: float = 30.0) -> dict[str, Any]:
        return await core.jobs.wait(core.jobs.find(which)["juid"], revision, min(timeout_s, 60.0))

    @app.get("/v1/jobs/{which}/log")
    async def job_log(
        which: str, offset: int = 0, attempt: int | None = None, follow: int = 0
    ) -> Response:
        found = core.jobs.find(which)
        chunks = _log_bytes(core, found["juid"], attempt, offset, bool(follow))
        return StreamingResponse(chunks, media_type="application/octet-stream")

    @app.post("/v1/jobs/{which}/cancel")
    async def cancel(which: str) -> dict[str, Any]:
        return await core.cancel(core.jobs.find(which)["juid"])

    @app.post("/v1/jobs/{which}/pause")
    async def pause(which: str) -> dict[str, Any]:
        return await core.pause(core.jobs.find(which)["juid"])

    @app.post("/v1/jobs/{which}/resume")
    async def resume(which: str) -> dict[str, Any]:
        return await core.resume(core.jobs.find(which)["juid"])

    @app.post("/v1/jobs/{which}/rerun")
    async def rerun(which: str) -> dict[str, Any]:
        return core.rerun(core.jobs.find(which)["juid"])

    @app.post("/v1/jobs/{which}/collect")
    async def collect(which: str) -> dict[str, Any]:
        return {"persist": await core.collect_now(core.jobs.find(which)["juid"])}


async def _log_bytes(core: Core, juid: str, attempt: int | None, offset: int, follow: bool) -> AsyncIterator[bytes]:
    """Bytes of a log; when following, until the attempt asked for (or the job's last) has ended."""
    while True:
        job = core.jobs.get(juid)
        number = attempt or max(int(job["attempt"]), 1)
        path = core.logs.path(juid, number)
        if path.exists():
            with path.open("rb") as source:
                source.seek(offset)
                while chunk := source.read(_FOLLOW_CHUNK_BYTES):
                    offset += len(chunk)
                    yield chunk
        job = core.jobs.get(juid)
        over = core.jobs.is_over(job) or (attempt is not None and attempt < job["attempt"])
        if not follow or (over and core.logs.size(juid, number) <= offset):
            return
        if attempt is None and int(job["attempt"]) > number:
            offset = 0
            continue
        await core.logs.changed(juid, 5.0)
