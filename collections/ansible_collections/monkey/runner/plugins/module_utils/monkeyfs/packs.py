"""Packs: blobs in one stream. `MKPK1\\n`, per blob one line `sha256 size\\n` and that many bytes, then `end\\n`.

Links, names and modes are not in a pack, so a hostile one can only hold content: every blob is verified before it gets
its name, and not one byte more than was announced is written.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import BinaryIO, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from .blobs import CHUNK_BYTES, MonkeyFS, chunks_of, open_regular
from .errors import MonkeyFSError, check_sha

MAGIC = b"MKPK1\n"
END = b"end\n"
# 64 hex digits, a space, at most 19 digits (2^63), a newline.
_MAX_LINE_BYTES = 85
_LINE = re.compile(rb"([0-9a-f]{64}) (0|[1-9][0-9]{0,18})\n\Z")

Source = Union[MonkeyFS, Mapping[str, str]]


def group(sizes: Mapping[str, int], limit_bytes: int) -> List[List[str]]:
    """`sizes` {sha256: bytes} in packs of at most `limit_bytes` of content; a larger blob stands alone."""
    packs: List[List[str]] = []
    room = 0
    for sha, size in sizes.items():
        if size > room or not packs:
            packs.append([])
            room = limit_bytes
        packs[-1].append(sha)
        room -= size
    return packs


def blob_chunks(sha: str, path: str, size: Optional[int] = None) -> Iterator[bytes]:
    """One blob of a pack from the file at `path`: its line, then its bytes.

    `size` takes only the start of a file that has grown since. Raises MonkeyFSError at the end when the content is not
    that of `sha`: the pack is then worthless, or must be cut back to before this blob.
    """
    fd = open_regular(path)
    try:
        yield from content_chunks(fd, check_sha(sha), os.fstat(fd).st_size if size is None else size, path)
    finally:
        os.close(fd)


def content_chunks(fd: int, sha: str, size: int, name: str) -> Iterator[bytes]:
    """`blob_chunks` of an open file; `name` is for the error."""
    yield b"%s %d\n" % (sha.encode("ascii"), size)
    digest = hashlib.sha256()
    left = size
    for chunk in chunks_of(fd, size):
        digest.update(chunk)
        left -= len(chunk)
        yield chunk
    if left or digest.hexdigest() != sha:
        raise MonkeyFSError("%s does not have the content %s any more" % (name, sha))


def chunks(source: Source, shas: Iterable[str]) -> Iterator[bytes]:
    """A pack of `shas`, each once, piece by piece; `source` is a store or {sha256: path}. Raises MonkeyFSError."""
    yield MAGIC
    for sha in dict.fromkeys(shas):
        yield from blob_chunks(sha, _path_in(source, sha))
    yield END


def _path_in(source: Source, sha: str) -> str:
    if isinstance(source, MonkeyFS):
        if not source.has(sha):
            raise MonkeyFSError("%s: blob %s is missing" % (source.root, sha))
        return source.blob_path(sha)
    if sha not in source:
        raise MonkeyFSError("no file is known for blob %s" % sha)
    return source[sha]


def write(source: Source, shas: Iterable[str], out: BinaryIO) -> Tuple[int, int]:
    """Writes a pack: (blobs, bytes of their content). Raises MonkeyFSError, OSError."""
    out.write(MAGIC)
    count = total = 0
    for sha in dict.fromkeys(shas):
        pieces = blob_chunks(sha, _path_in(source, sha))
        out.write(next(pieces))
        for chunk in pieces:
            out.write(chunk)
            total += len(chunk)
        count += 1
    out.write(END)
    return count, total


def blobs(
    stream: BinaryIO, announced: Optional[Mapping[str, int]] = None, last: bool = True
) -> Iterator[Tuple[str, int, Iterator[bytes]]]:
    """(sha256, size, its bytes) of each blob in a pack; the bytes are not verified, and must be read before the next.

    With `announced` {sha256: size} anything else is refused before it is read. `last` refuses anything after the end.
    Raises MonkeyFSError.
    """
    if _exactly(stream, len(MAGIC)) != MAGIC:
        raise MonkeyFSError("this is not a pack: it does not begin with MKPK1")
    while True:
        line = stream.readline(_MAX_LINE_BYTES)
        if line == END:
            break
        match = _LINE.match(line)
        if match is None:
            raise MonkeyFSError("the pack is cut off or broken: expected `sha256 size`, found %.80r" % line)
        sha, size = match.group(1).decode("ascii"), int(match.group(2))
        if announced is not None and announced.get(sha) != size:
            raise MonkeyFSError("the pack holds blob %s of %d bytes, which was not announced" % (sha, size))
        content = _Content(stream, sha, size)
        yield sha, size, content.chunks()
        if content.left:
            raise MonkeyFSError("blob %s of the pack was not read to its end" % sha)
    if last and stream.read(1):
        raise MonkeyFSError("there is something after the end of the pack")


def read(
    stream: BinaryIO, fs: MonkeyFS, announced: Optional[Mapping[str, int]] = None, last: bool = True
) -> Tuple[int, int]:
    """Takes a pack into a store: (blobs, bytes). What was verified before an error stays; see `blobs` for the rest.

    Raises MonkeyFSError, and OSError (ENOSPC, EDQUOT) on a full disk.
    """
    count = total = 0
    with fs.batch() as batch:
        for sha, size, content in blobs(stream, announced, last):
            batch.add(content, sha, size)
            count += 1
            total += size
    return count, total


def read_small(stream: BinaryIO, max_bytes: int, last: bool = True) -> Dict[str, bytes]:
    """A small pack in memory, {sha256: content}, verified; MonkeyFSError when it holds more than `max_bytes`."""
    found: Dict[str, bytes] = {}
    left = max_bytes
    for sha, size, content in blobs(stream, None, last):
        left -= size
        if left < 0:
            raise MonkeyFSError("the pack holds more than %d bytes" % max_bytes)
        found[sha] = b"".join(content)
        if hashlib.sha256(found[sha]).hexdigest() != sha:
            raise MonkeyFSError("content does not have the announced sha256 %s" % sha)
    return found


class _Content:
    def __init__(self, stream: BinaryIO, sha: str, size: int) -> None:
        self._stream = stream
        self._sha = sha
        self.left = size

    def chunks(self) -> Iterator[bytes]:
        while self.left:
            chunk = self._stream.read(min(CHUNK_BYTES, self.left))
            if not chunk:
                raise MonkeyFSError("the pack is cut off within blob %s" % self._sha)
            self.left -= len(chunk)
            yield chunk


def _exactly(stream: BinaryIO, size: int) -> bytes:
    parts: List[bytes] = []
    while size:
        part = stream.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
