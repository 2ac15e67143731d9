"""Folder -> tree: one walk that follows no link and reads only what changed since the last one."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import Any, Callable, Dict, List, MutableMapping, Optional, Tuple

from .blobs import chunks_of, open_regular, stamp_of
from .entries import MODE_EXECUTABLE, MODE_FILE, Tree, check, leaves
from .errors import MonkeyFSError
from .folders import MAX_DEPTH, PathLike, child, open_beneath, open_top, parts_beneath

Skip = Callable[[str, bool], bool]
Problem = Callable[[str, str], None]
Cache = MutableMapping[str, List[Any]]
# (name, descriptor of its folder, status) -> (sha256, status of what was read)
Read = Callable[[bytes, int, os.stat_result], Tuple[str, os.stat_result]]

_TRIES = 3
_RETRY_S = 0.05
# A file may change twice within one tick of the file system's clock (2 s on FAT, 1 s on old NFS servers) and keep its
# stamp: what was touched this shortly before it was read is read again next time (git's "racy" rule).
_RACY_NS = 2_000_000_000
_KINDS = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


def hash_regular(raw: bytes, dir_fd: Optional[int] = None, prefix_ok: bool = False) -> Tuple[str, os.stat_result]:
    """(sha256, status) of a regular file that did not change while it was read; no link is followed.

    Tried three times, then MonkeyFSError; with `prefix_ok` a file that only grew meanwhile, like a log, is taken up to
    the size (`st_size`) that it had when it was opened. Raises OSError when it cannot be read.
    """
    for attempt in range(_TRIES):
        fd = open_regular(raw, dir_fd=dir_fd, follow=False)
        try:
            before = os.fstat(fd)
            digest = hashlib.sha256()
            count = 0
            for chunk in chunks_of(fd, before.st_size):
                digest.update(chunk)
                count += len(chunk)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        if count == before.st_size:
            if stamp_of(before) == stamp_of(after):
                return digest.hexdigest(), before
            if prefix_ok and attempt == _TRIES - 1 and after.st_size > before.st_size:
                return digest.hexdigest(), before
        if attempt < _TRIES - 1:
            time.sleep(_RETRY_S * (attempt + 1))
    raise MonkeyFSError("keeps changing while it is read")


class _Scan:
    def __init__(
        self,
        top: str,
        skip: Optional[Skip],
        cache: Optional[Cache],
        problem: Optional[Problem],
        read: Optional[Read],
    ) -> None:
        self.top = top
        self.skip = skip
        self.read = read or (lambda raw, fd, _status: hash_regular(raw, fd, prefix_ok=problem is not None))
        self.old: Cache = {} if cache is None else cache
        self.new: Dict[str, List[Any]] = {}
        self.problem = problem
        self.entries: List[Dict[str, Any]] = []
        self.paths: Dict[str, str] = {}

    def refuse(self, path: str, why: str) -> int:
        if self.problem is None:
            raise MonkeyFSError("%s: %s" % (os.path.join(self.top, path), why))
        self.problem(path, why)
        return 0

    def folder(self, fd: int, path: str, depth: int) -> int:
        """Walks one folder: how many entries it gave."""
        if depth > MAX_DEPTH:
            return self.refuse(path, "folders are nested more than %d deep" % MAX_DEPTH)
        count = 0
        prefix = path + "/" if path else ""
        with os.scandir(fd) as found:
            names = sorted(os.fsencode(entry.name) for entry in found)
        for raw in names:
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                self.refuse(prefix + ascii(raw)[2:-1], "the file name is not valid UTF-8: rename it")
                continue
            try:
                count += self.entry(fd, raw, prefix + name, depth)
            except FileNotFoundError:
                continue  # gone since the folder was listed: a folder in use is taken as it is found
            except OSError as error:
                self.refuse(prefix + name, "cannot be read: %s" % error.strerror)
        return count

    def entry(self, fd: int, raw: bytes, path: str, depth: int) -> int:
        status = os.stat(raw, dir_fd=fd, follow_symlinks=False)
        mode = status.st_mode
        if self.skip is not None and self.skip(path, stat.S_ISDIR(mode)):
            return 0
        if stat.S_ISDIR(mode):
            below = child(fd, os.fsdecode(raw))
            try:
                if self.folder(below, path, depth + 1) == 0:
                    self.entries.append({"path": path, "type": "dir"})
            finally:
                os.close(below)
            return 1
        if stat.S_ISLNK(mode):
            return self.link(fd, raw, path)
        if stat.S_ISREG(mode):
            return self.file(fd, raw, path, status)
        kind = next((word for test, word in _KINDS if test(mode)), "a special file")
        return self.refuse(path, "is %s: only files, folders and links can be taken" % kind)

    def link(self, fd: int, raw: bytes, path: str) -> int:
        target = os.fsencode(os.readlink(raw, dir_fd=fd))
        for top in (os.fsencode(self.top), os.fsencode(os.path.realpath(self.top))):
            if target.startswith(top + b"/") and b".." not in target.split(b"/"):
                # An absolute link to a place in the folder means that place wherever the tree is written out.
                target = os.path.relpath(target[len(top):], b"/" + os.path.dirname(path.encode("utf-8")))
                break
        try:
            text = target.decode("utf-8")
        except UnicodeDecodeError:
            return self.refuse(path, "the target of this link is not valid UTF-8")
        self.entries.append({"path": path, "type": "link", "target": text})
        return 1

    def file(self, fd: int, raw: bytes, path: str, status: os.stat_result) -> int:
        known = self.old.get(path)
        if known is not None and list(known[:4]) == list(stamp_of(status)):
            sha, size = str(known[4]), status.st_size
            self.new[path] = list(known)
        else:
            started_ns = time.time_ns()
            try:
                sha, status = self.read(raw, fd, status)
            except MonkeyFSError as error:
                return self.refuse(path, str(error))
            size = status.st_size
            if max(status.st_mtime_ns, status.st_ctime_ns) < started_ns - _RACY_NS:
                self.new[path] = [*stamp_of(status), sha]
        mode = MODE_EXECUTABLE if status.st_mode & 0o111 else MODE_FILE
        self.entries.append({"path": path, "type": "file", "sha256": sha, "size": size, "mode": mode})
        self.paths[sha] = os.path.join(self.top, os.fsdecode(path.encode("utf-8")))
        return 1

    def drop_bad_links(self) -> None:
        links = {entry["path"]: entry["target"] for entry in self.entries if entry["type"] == "link"}
        bad = [path for path in links if leaves(path, links)]
        for path in bad:
            self.refuse(path, "this link leaves the folder (-> %s)" % links[path])
        if bad:
            # Fewer links cannot make another one leave: what leads through a missing one leads nowhere.
            self.entries = [entry for entry in self.entries if entry["path"] not in bad]


def scan(
    folder: PathLike,
    skip: Optional[Skip] = None,
    cache: Optional[Cache] = None,
    problem: Optional[Problem] = None,
    beneath: Optional[PathLike] = None,
    read: Optional[Read] = None,
) -> Tuple[Tree, Dict[str, str]]:
    """The tree of `folder`, and {sha256: absolute path} of its files.

    `skip(path, is_folder)` leaves an entry out; a folder left out is not entered. `cache` maps a path to
    [size, mtime_ns, inode, ctime_ns, sha256]: a file with the same stamp is not read again; it is brought up to date in
    place. With `beneath`, no link on the way from there to `folder` is followed. `read` reads files in place of
    `hash_regular`, and raises what that does.

    Refused with a MonkeyFSError that names the path: links that leave the folder, sockets, pipes and devices, names
    that are not UTF-8, files that cannot be read or keep changing. With `problem(path, why)` these are told and left
    out instead, and a file that only grows is taken as far as it was. Raises OSError when `folder` cannot be opened.
    """
    top = os.path.abspath(folder)
    if beneath is None:
        fd = open_top(top)
    else:
        top_fd = open_top(beneath)
        try:
            fd = open_beneath(top_fd, parts_beneath(folder, beneath))
        finally:
            os.close(top_fd)
    walk = _Scan(top, skip, cache, problem, read)
    try:
        walk.folder(fd, "", 0)
    finally:
        os.close(fd)
    walk.drop_bad_links()
    tree = check({"entries": sorted(walk.entries, key=lambda entry: str(entry["path"]))})
    if cache is not None:
        cache.clear()
        cache.update(walk.new)
    return tree, walk.paths
