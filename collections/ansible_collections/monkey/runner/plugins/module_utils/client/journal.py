"""Numbered events that are kept until they are acknowledged.

One line per event: crc32 of the JSON, a space, the JSON. An event counts once fsync has returned. ``acked`` holds the
number of the last acknowledged event, and the journal's own id: numbers begin again when a home is made anew.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from typing import Any, Dict, List, Optional

from ..monkeyfs.blobs import sync_folder
from .files import read_json, to_json, write_all, write_atomic, write_json

# Acknowledged lines are cut off when they are this many bytes, or when all are acknowledged.
_CUT_BYTES = 256 * 1024


def _line(event: Dict[str, Any]) -> bytes:
    body = to_json(event)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes) -> Optional[Dict[str, Any]]:
    if len(line) < 10 or line[8:9] != b" " or b"%08x" % zlib.crc32(line[9:]) != line[:8]:
        return None
    event = json.loads(line[9:])
    return event if isinstance(event, dict) else None


class Journal:
    """The journal in ``folder``, opened by the one daemon of a home. Raises OSError."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        self._folder = folder
        self._path = os.path.join(folder, "events")
        head = read_json(os.path.join(folder, "acked"))
        if head is None:
            head = {"acked": 0, "id": secrets.token_hex(8)}
            write_json(os.path.join(folder, "acked"), head, durable=True)
        self.id: str = head["id"]
        self.acked: int = head["acked"]
        self.last_seq = self.acked
        self._events: List[Dict[str, Any]] = []
        self._dead_bytes = 0
        damaged = self._load()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if damaged:
            self._rewrite()
        self._size = os.fstat(self._fd).st_size
        sync_folder(folder)

    def _load(self) -> bool:
        try:
            with open(self._path, "rb") as handle:
                data = handle.read()
        except FileNotFoundError:
            return False
        lines = data.split(b"\n")
        damaged = lines.pop() != b""
        for line in lines:
            event = _parse(line)
            if event is None:
                damaged = True
                continue
            self.last_seq = max(self.last_seq, event["seq"])
            if event["seq"] > self.acked:
                self._events.append(event)
            else:
                self._dead_bytes += len(line) + 1
        return damaged

    def append(self, events: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """Number the events and write them; they are durable on return. Raises OSError, and then none counts."""
        numbered = [dict(event, seq=self.last_seq + 1 + index) for index, event in enumerate(events)]
        data = b"".join(_line(event) for event in numbered)
        try:
            write_all(self._fd, data)
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)
        self.last_seq += len(numbered)
        self._events.extend(numbered)
        return numbered

    def ack(self, seq: int) -> None:
        """Forget the events up to ``seq``. An unknown number is ignored. Raises OSError."""
        if not self.acked < seq <= self.last_seq:
            return
        gone = 0
        while gone < len(self._events) and self._events[gone]["seq"] <= seq:
            gone += 1
        kept = self._events[gone:]
        self._dead_bytes += sum(len(_line(event)) for event in self._events[:gone])
        cut = not kept or self._dead_bytes > _CUT_BYTES
        # Numbers must go on after the cut: the head is on disk before the lines go.
        write_json(os.path.join(self._folder, "acked"), {"acked": seq, "id": self.id}, durable=cut)
        self.acked = seq
        self._events = kept
        if cut:
            self._rewrite()

    def after(self, seq: int, limit: int = 1000) -> List[Dict[str, Any]]:
        """Up to ``limit`` unacknowledged events beyond ``seq``, in order."""
        if not self._events:
            return []
        # Numbers in memory have no gaps, but for what a damaged file lost.
        start = max(0, seq + 1 - self._events[0]["seq"])
        while start and (start > len(self._events) or self._events[start - 1]["seq"] > seq):
            start -= 1
        while start < len(self._events) and self._events[start]["seq"] <= seq:
            start += 1
        return self._events[start : start + limit]

    def _rewrite(self) -> None:
        self._dead_bytes = 0
        if self._events:
            write_atomic(self._path, b"".join(_line(event) for event in self._events), durable=True)
            os.close(self._fd)
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        else:
            os.ftruncate(self._fd, 0)
        self._size = os.fstat(self._fd).st_size

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)
