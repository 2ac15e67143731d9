"""Routes of the record itself: its size, compaction, export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from monkey.core.daemon import Core
from monkey.store import export_lines
from monkey.version import __version__

# Other requests have their turn between two pieces: a few milliseconds.
_PIECE_BYTES = 256 * 1024


def state_router(core: Core) -> APIRouter:
    """Routes below ``/v1/state``."""
    router = APIRouter()

    @router.get("")
    async def state() -> dict[str, Any]:
        return core.store.summary()

    @router.post("/compact")
    async def compact() -> dict[str, Any]:
        await asyncio.to_thread(core.store.compact)
        return core.store.summary()

    @router.get("/export")
    async def export() -> Response:
        seq, entries = core.store.entries()
        lines = export_lines(seq, entries, __version__)
        return StreamingResponse(_pieces(lines), media_type="application/x-ndjson")

    return router


async def _pieces(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
            await asyncio.sleep(0)
    yield b"".join(piece)
