"""The route of recorded changes: what is in the jobs' histories, and what is added to them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from monkey.core.daemon import Core
from monkey.jobs import Job

# The changes of all jobs are those of the newest ones.
_NEWEST_JOBS = 500


def events_router(core: Core) -> APIRouter:
    """The route ``/v1/events``."""
    router = APIRouter()

    @router.get("")
    async def events(job: str | None = None, limit: int | None = None, follow: int = 0) -> Response:
        juid = core.jobs.find(job)["juid"] if job else None
        return StreamingResponse(_lines(core, juid, limit, bool(follow)), media_type="application/x-ndjson")

    return router


async def _lines(core: Core, juid: str | None, limit: int | None, follow: bool) -> AsyncIterator[str]:
    with core.changes.listen(juid) as heard:
        past = [core.jobs.get(juid)] if juid else core.jobs.newest(_NEWEST_JOBS)
        entries = sorted((entry for job in past for entry in entries_of(job)), key=lambda entry: str(entry["at"]))
        for entry in entries if limit is None else entries[max(0, len(entries) - limit) :]:
            yield json.dumps(entry) + "\n"
        while follow and not core.stopping.is_set():
            job = await heard.get()
            if job is None:
                return
            yield json.dumps(entries_of(job)[-1]) + "\n"


def entries_of(job: Job) -> list[dict[str, Any]]:
    """The recorded changes of a job, oldest first."""
    return [{"juid": job["juid"], "nickname": job["nickname"], **entry} for entry in job["history"]]
