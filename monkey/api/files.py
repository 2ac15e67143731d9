"""Routes of monkeyfs: what is missing, packs and trees in and out."""

from __future__ import annotations

import asyncio
import io
import queue
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs, trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFSError
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from monkey.api.models import Hashes
from monkey.core.daemon import Core
from monkey.errors import UsageProblem

_QUEUED_CHUNKS = 32


class _Incoming(io.RawIOBase):
    """A readable file fed by the event loop, for code that reads in a thread."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_QUEUED_CHUNKS)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def feed(self, chunk: bytes | None, timeout_s: float = 60.0) -> None:
        """Hand in bytes; None ends the file."""
        self._chunks.put(chunk, timeout=timeout_s)

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = self._chunks.get()
            if chunk is None:
                self._chunks.put(None)
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def files_router(core: Core) -> APIRouter:
    """Routes below ``/v1/fs``."""
    router = APIRouter()

    @router.post("/missing")
    async def missing(body: Hashes) -> dict[str, Any]:
        return {"missing": await asyncio.to_thread(core.fs.missing, body.sha256)}

    @router.put("/pack")
    async def take_pack(request: Request) -> dict[str, Any]:
        incoming = _Incoming()
        reader = asyncio.create_task(asyncio.to_thread(packs.read, io.BufferedReader(incoming, 1 << 20), core.fs))
        try:
            async for chunk in request.stream():
                if reader.done():
                    break
                if chunk:
                    await asyncio.to_thread(incoming.feed, chunk)
        finally:
            if not reader.done():
                await asyncio.to_thread(incoming.feed, None)
        try:
            files, size_bytes = await reader
        except MonkeyFSError as error:
            raise UsageProblem("pack", str(error)) from error
        return {"files": files, "bytes": size_bytes}

    @router.put("/trees/{tree_id}")
    async def take_tree(tree_id: str, request: Request) -> dict[str, Any]:
        try:
            tree = trees.parse(trees.canonical(await request.json()), tree_id)
            lacking = core.fs.missing(trees.blobs_of(tree))
            if lacking:
                raise UsageProblem("tree", f"{len(lacking)} of its files are not here yet; send them first")
            await asyncio.to_thread(core.fs.put_tree, tree)
        except (MonkeyFSError, ValueError, TypeError, AttributeError, KeyError) as error:
            if isinstance(error, UsageProblem):
                raise
            raise UsageProblem("tree", f"not a tree: {error}") from error
        files, size_bytes = trees.summary(tree)
        return {"id": tree_id, "files": files, "bytes": size_bytes}

    @router.get("/trees/{tree_id}")
    async def give_tree(tree_id: str) -> dict[str, Any]:
        try:
            return core.fs.get_tree(tree_id)
        except MonkeyFSError as error:
            raise UsageProblem("tree", str(error)) from error

    @router.post("/pack")
    async def give_pack(body: Hashes) -> StreamingResponse:
        lacking = core.fs.missing(body.sha256)
        if lacking:
            raise UsageProblem("sha256", f"{lacking[0]} is not in monkeyfs")
        return StreamingResponse(packs.chunks(core.fs, body.sha256), media_type="application/octet-stream")

    return router
