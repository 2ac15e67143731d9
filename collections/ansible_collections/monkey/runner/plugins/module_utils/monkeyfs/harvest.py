"""What an attempt leaves on its host, read while the job may still be writing it: the host's side of `collect`.

Everything below an attempt's folder was made by a job and is not trusted: no link is followed there.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

from . import packs, staging
from .blobs import chunks_of, open_regular
from .entries import check_path
from .errors import MonkeyFSError, check_sha
from .folders import open_beneath, open_top
from .scanning import Read, hash_regular, scan

_CACHE = "collect.json"


class Attempt:
    """The folder of one attempt: `attempts/<JUID>.<n>` in the home of a client."""

    def __init__(self, home: str, juid: str, attempt: int) -> None:
        self.name = "%s.%d" % (juid, attempt)
        if "/" in check_path(self.name):
            raise MonkeyFSError("%r is not the name of an attempt" % self.name)
        self.folder = os.path.join(home, "attempts", self.name)

    def exists(self) -> bool:
        """Whether the host knows this attempt."""
        return os.path.isdir(self.folder)

    def ended(self) -> bool:
        """Whether nothing will change its files any more."""
        return os.path.lexists(os.path.join(self.folder, "exit.json"))

    def stage(self, room: staging.Room) -> staging.Staging:
        """Where files that change while they are collected are copied to."""
        return staging.Staging(self.folder, room)

    def unstage(self) -> None:
        """Removes such copies, also those that a collect left which was cut off. Raises OSError."""
        staging.clear(self.folder)

    def persisted(self, path: str, caches: Dict[str, Any], read: Optional[Read] = None) -> Dict[str, Any]:
        """{"tree", "skipped"} of the persisted folder `path`; an empty tree when the job has not made it.

        `skipped` lists [path, why] of what cannot be taken; `read` is for `scan`. Raises MonkeyFSError when it is no
        folder.
        """
        check_path(path)
        skipped: List[Tuple[str, str]] = []
        cache = caches.setdefault(path, {})
        try:
            tree, _paths = scan(
                os.path.join(self.folder, "work", path),
                cache=cache,
                problem=lambda where, why: skipped.append((where, why)),
                beneath=self.folder,
                read=read,
            )
        except FileNotFoundError:
            tree = {"entries": []}
        except NotADirectoryError:
            raise MonkeyFSError("%s: %s is not a folder, or a link leads there" % (self.name, path)) from None
        except OSError as error:
            raise MonkeyFSError("%s: %s cannot be read: %s" % (self.name, path, error.strerror)) from error
        return {"tree": tree, "skipped": skipped}

    def log(self) -> Optional[Dict[str, Any]]:
        """{"sha256", "size"} of the log as far as it is written; None when there is none yet."""
        top_fd = open_top(self.folder)
        try:
            sha, status = hash_regular(b"log", top_fd, prefix_ok=True)
        except FileNotFoundError:
            return None
        finally:
            os.close(top_fd)
        return {"sha256": sha, "size": status.st_size}

    def load_caches(self) -> Dict[str, Any]:
        """{path: scan cache} that the last collect left; empty when there is none, or a broken one."""
        try:
            with open(os.path.join(self.folder, _CACHE), encoding="utf-8") as file:
                caches = json.load(file)
            for cache in caches.values():
                for stamp in cache.values():
                    if len(stamp) != 5 or not all(isinstance(number, int) for number in stamp[:4]):
                        return {}
                    check_sha(stamp[4])
            return dict(caches)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def save_caches(self, caches: Dict[str, Any]) -> None:
        """Keeps the caches for the next collect; on a full disk only time is lost."""
        beside = None
        try:
            fd, beside = tempfile.mkstemp(prefix="collect-", dir=self.folder)
            with open(fd, "w", encoding="utf-8") as file:
                json.dump(caches, file)
            os.rename(beside, os.path.join(self.folder, _CACHE))
        except OSError:
            if beside is not None and os.path.exists(beside):
                os.unlink(beside)


def open_file(home: str, where: str) -> int:
    """A descriptor of the regular file `where`, a path below `attempts/`; no link is followed."""
    parts = check_path(where).split("/")
    top_fd = open_top(os.path.join(home, "attempts"))
    try:
        folder_fd = open_beneath(top_fd, parts[:-1])
    finally:
        os.close(top_fd)
    try:
        return open_regular(parts[-1].encode("utf-8"), dir_fd=folder_fd, follow=False)
    finally:
        os.close(folder_fd)


def pack(home: str, items: List[List[Any]], out: BinaryIO) -> List[str]:
    """Writes a pack of `items` [[sha256, size, path below attempts/]] to a file: the sha256 of those that changed.

    A file that has only grown still begins with what was announced. What changed is cut out of the pack again.
    """
    changed = []
    out.write(packs.MAGIC)
    for sha, size, where in items:
        start = out.tell()
        try:
            fd = open_file(home, where)
        except (OSError, MonkeyFSError):
            changed.append(sha)
            continue
        try:
            for chunk in packs.content_chunks(fd, check_sha(sha), size, where):
                out.write(chunk)
        except MonkeyFSError:
            out.seek(start)
            out.truncate()
            changed.append(sha)
        finally:
            os.close(fd)
    out.write(packs.END)
    return changed


def part(home: str, where: str, offset: int, size: int, out: BinaryIO) -> int:
    """Copies `size` bytes of one file from `offset` on: how many there were."""
    fd = open_file(home, where)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        copied = 0
        for chunk in chunks_of(fd, size):
            out.write(chunk)
            copied += len(chunk)
        return copied
    finally:
        os.close(fd)
