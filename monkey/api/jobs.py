"""Routes of jobs: handed in, listed, followed, changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from monkey.api.models import JobChange, PlanBody, RerunBody, Submission
from monkey.core.daemon import Core

_FOLLOW_CHUNK_BYTES = 256 * 1024


def jobs_router(core: Core) -> APIRouter:
    """Routes below ``/v1`` that are about jobs."""
    router = APIRouter()
    requests = core.requests

    @router.get("/jobs")
    async def jobs(
        state: str | None = None, provider: str | None = None, name: str | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        return {"jobs": core.jobs.listing(state=state, provider=provider, name=name, limit=limit)}

    @router.post("/jobs")
    async def submit(
        body: Submission, idempotency_key: Annotated[str | None, Header()] = None
    ) -> dict[str, Any]:
        return requests.submit(body, idempotency_key)

    @router.post("/plan")
    async def plan(body: PlanBody) -> dict[str, Any]:
        return await requests.plan(body)

    @router.get("/jobs/{which}")
    async def job(which: str) -> dict[str, Any]:
        return core.jobs.find(which)

    @router.get("/jobs/{which}/wait")
    async def wait(which: str, revision: int = 0, timeout_s: float = 30.0) -> dict[str, Any]:
        return await core.jobs.wait(core.jobs.find(which)["juid"], revision, min(timeout_s, 60.0))

    @router.get("/jobs/{which}/log")
    async def job_log(
        which: str, offset: int = 0, attempt: int | None = None, follow: int = 0
    ) -> Response:
        found = core.jobs.find(which)
        chunks = _log_bytes(core, found["juid"], attempt, offset, bool(follow))
        return StreamingResponse(chunks, media_type="application/octet-stream")

    @router.post("/jobs/{which}/cancel")
    async def cancel(which: str) -> dict[str, Any]:
        return await requests.cancel(core.jobs.find(which)["juid"])

    @router.post("/jobs/{which}/pause")
    async def pause(which: str) -> dict[str, Any]:
        return await requests.pause(core.jobs.find(which)["juid"])

    @router.post("/jobs/{which}/resume")
    async def resume(which: str) -> dict[str, Any]:
        return await requests.resume(core.jobs.find(which)["juid"])

    @router.post("/jobs/{which}/rerun")
    async def rerun(which: str) -> dict[str, Any]:
        return requests.rerun(core.jobs.find(which)["juid"])

    @router.post("/jobs/{which}/collect")
    async def collect(which: str) -> dict[str, Any]:
        return {"persist": await core.collect_now(core.jobs.find(which)["juid"])}

    @router.post("/jobs/{which}/reset")
    async def reset(which: str) -> dict[str, Any]:
        return requests.reset(core.jobs.find(which)["juid"])

    @router.patch("/jobs/{which}")
    async def change(which: str, body: JobChange) -> dict[str, Any]:
        return requests.change(core.jobs.find(which)["juid"], body)

    @router.post("/jobs/rerun")
    async def rerun_failed(body: RerunBody) -> dict[str, Any]:
        return {"jobs": requests.rerun_failed(body.provider, body.name)}

    @router.get("/jobs/{which}/explain")
    async def explain(which: str) -> dict[str, Any]:
        return requests.explain(core.jobs.find(which)["juid"])

    return router


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
