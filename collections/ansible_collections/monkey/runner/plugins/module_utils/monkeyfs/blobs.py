"""The store: blobs named by their sha256 and trees named by the sha256 of their canonical form.

Layout and formats: docs/interfaces.md. Everything is written to `tmp/`, synced, then renamed, so that a name in
`blobs/` or `trees/` always stands for whole and verified content.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import time
from typing import BinaryIO, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Union

from .entries import Tree, blobs_of, canonical, parse
from .errors import MonkeyFSError, check_sha
from .folders import PathLike

__all__ = ["CHUNK_BYTES", "Batch", "MonkeyFS", "MonkeyFSError", "chunks_of", "open_regular"]

CHUNK_BYTES = 1 << 20
# Blobs of a batch stay open until they are synced together: one journal commit of the file system serves many.
_BATCH_FILES = 64
_READ_TRIES = 3
_RETRY_S = 0.05

Stamp = Tuple[int, int, int, int]


def stamp_of(status: os.stat_result) -> Stamp:
    """(size, mtime_ns, inode, ctime_ns): what tells that a file is still the one that was read."""
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def open_regular(path: Union[PathLike, bytes], dir_fd: Optional[int] = None, follow: bool = True) -> int:
    """A descriptor of the regular file at `path`; MonkeyFSError for anything else, never blocking on a fifo."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise MonkeyFSError("%s is not a regular file" % os.fsdecode(path))
    return fd


def chunks_of(fd: int, size: Optional[int] = None) -> Iterator[bytes]:
    """The bytes of `fd` from where it stands, at most `size` of them, in pieces of up to 1 MiB."""
    left = size
    while left is None or left > 0:
        chunk = os.read(fd, CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


class Batch:
    """Blobs on their way into a store: synced and named together when the `with` block ends, or 64 at a time.

    A blob has its name only after `commit`. An exception in the block does not lose what was verified before it.
    """

    def __init__(self, fs: MonkeyFS) -> None:
        self._fs = fs
        self._open: List[Tuple[int, str, str]] = []
        self._pending: Set[str] = set()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *unused: object) -> None:
        self.commit()

    def add(self, chunks: Iterable[bytes], sha: Optional[str] = None, size: Optional[int] = None) -> Tuple[str, int]:
        """Takes one blob in: (sha256, size in bytes).

        With `sha` and `size` the content must have them, and not one byte more than `size` is written. Raises
        MonkeyFSError on other content, OSError (ENOSPC, EDQUOT) on a full disk.
        """
        fd, path = self._fs.tmp_file()
        try:
            digest = hashlib.sha256()
            written = 0
            for chunk in chunks:
                written += len(chunk)
                if size is not None and written > size:
                    raise MonkeyFSError("blob %s is longer than announced (%d bytes)" % (sha, size))
                digest.update(chunk)
                write_all(fd, chunk)
            found = digest.hexdigest()
            if size is not None and written != size:
                raise MonkeyFSError("blob %s is shorter than announced (%d of %d bytes)" % (sha, written, size))
            if sha is not None and found != sha:
                raise MonkeyFSError("content does not have the announced sha256 %s" % sha)
            if found in self._pending or self._fs.has(found, written):
                os.close(fd)
                os.unlink(path)
                return found, written
        except BaseException:
            os.close(fd)
            os.unlink(path)
            raise
        self._open.append((fd, path, found))
        self._pending.add(found)
        if len(self._open) >= _BATCH_FILES:
            self.commit()
        return found, written

    def put_file(self, path: PathLike, expected: Optional[str] = None) -> Tuple[str, int]:
        """See `MonkeyFS.put_file`."""
        for attempt in range(_READ_TRIES):
            fd = open_regular(path)
            try:
                before = os.fstat(fd)
                if expected is not None and (
                    expected in self._pending or self._fs.has(expected, before.st_size)
                ):
                    return expected, before.st_size
                sha, size = self.add(chunks_of(fd))
                if stamp_of(before) == stamp_of(os.fstat(fd)) and size == before.st_size:
                    if expected is not None and sha != expected:
                        raise MonkeyFSError("%s is no longer the file that was read first" % os.fspath(path))
                    return sha, size
            finally:
                os.close(fd)
            time.sleep(_RETRY_S * (attempt + 1))
        raise MonkeyFSError("%s keeps changing while it is read" % os.fspath(path))

    def commit(self) -> None:
        """Syncs and names everything added so far. Raises OSError; what could not be named is thrown away."""
        todo, self._open = self._open, []
        self._pending.clear()
        folders: Set[str] = set()
        try:
            for fd, _path, _sha in todo:
                os.fchmod(fd, 0o444)
                os.fsync(fd)
            while todo:
                fd, path, sha = todo[-1]
                folders.add(self._fs.name_blob(path, sha))
                todo.pop()
                os.close(fd)
        finally:
            for fd, path, _sha in todo:
                os.close(fd)
                os.unlink(path)
            for folder in folders:
                sync_folder(folder)


class MonkeyFS:
    """A content-addressed store in one folder; several processes may use it at once."""

    def __init__(self, root: PathLike) -> None:
        """`root` is made with the first write, so that looking at a store changes nothing."""
        self.root = os.path.abspath(os.path.expanduser(os.fspath(root)))

    # Blobs

    def blob_path(self, sha: str) -> str:
        """Where the blob is, or would be."""
        check_sha(sha)
        return os.path.join(self.root, "blobs", sha[:2], sha)

    def has(self, sha: str, size: Optional[int] = None) -> bool:
        """Whether the blob is there, of `size` bytes if that is given: a damaged one counts as missing."""
        try:
            status = os.lstat(self.blob_path(sha))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and size in (None, status.st_size)

    def missing(self, shas: Union[Iterable[str], Mapping[str, int]]) -> List[str]:
        """Those of `shas` that are not here, each once, in the order given; a mapping {sha: size} checks sizes too."""
        sizes: Mapping[str, Optional[int]] = shas if isinstance(shas, Mapping) else dict.fromkeys(shas)
        return [sha for sha, size in sizes.items() if not self.has(sha, size)]

    def batch(self) -> Batch:
        """Takes many blobs in with few syncs."""
        return Batch(self)

    def put_file(self, path: PathLike, expected: Optional[str] = None) -> Tuple[str, int]:
        """Streams a file in: (sha256, size in bytes).

        With `expected` (a sha256), a blob that is here already costs no read, and other content is refused. Raises
        MonkeyFSError for what is not a regular file or keeps changing while it is read, OSError (ENOSPC).
        """
        with self.batch() as batch:
            return batch.put_file(path, expected)

    def put_bytes(self, content: bytes) -> str:
        """Takes `content` in: its sha256."""
        sha = hashlib.sha256(content).hexdigest()
        if not self.has(sha, len(content)):
            with self.batch() as batch:
                batch.add([content])
        return sha

    def open_blob(self, sha: str, size: Optional[int] = None) -> BinaryIO:
        """The blob for reading; MonkeyFSError when it is missing, or not of `size` bytes."""
        if not self.has(sha, size):
            raise MonkeyFSError("%s: blob %s is missing or damaged" % (self.root, sha))
        return open(self.blob_path(sha), "rb")

    # Trees

    def tree_path(self, tree_id: str) -> str:
        """Where the tree's canonical JSON is, or would be."""
        check_sha(tree_id)
        return os.path.join(self.root, "trees", tree_id[:2], tree_id + ".json")

    def has_tree(self, tree_id: str) -> bool:
        """Whether the tree is known here (its blobs were there when it was taken in)."""
        return os.path.isfile(self.tree_path(tree_id))

    def get_tree(self, tree_id: str) -> Tree:
        """The tree, verified against its id and checked; MonkeyFSError when it is not here or damaged."""
        try:
            with open(self.tree_path(tree_id), "rb") as file:
                return parse(file.read(), tree_id)
        except FileNotFoundError:
            raise MonkeyFSError("%s: no tree %s" % (self.root, tree_id)) from None

    def put_tree(self, tree: Tree) -> str:
        """Takes a tree in whose blobs are all here: its id. MonkeyFSError names the first blob that is missing."""
        content = canonical(tree)
        missing = self.missing(blobs_of(tree))
        if missing:
            raise MonkeyFSError("%d blobs of the tree are missing, %s first" % (len(missing), missing[0]))
        name = hashlib.sha256(content).hexdigest()
        final = self.tree_path(name)
        if _holds(final, content):
            return name
        fd, path = self.tmp_file()
        try:
            write_all(fd, content)
            os.fchmod(fd, 0o444)
            os.fsync(fd)
            _make(os.path.dirname(final))
            os.rename(path, final)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        sync_folder(os.path.dirname(final))
        return name

    def take(self, tree: Tree, paths: Mapping[str, str]) -> Tuple[str, int, int]:
        """Takes a scanned tree in with the files at `paths` {sha256: path}: (id, blobs added, bytes added).

        Raises MonkeyFSError when a file changed since it was scanned.
        """
        sizes = blobs_of(tree)
        missing = self.missing(sizes)
        with self.batch() as batch:
            for sha in missing:
                batch.put_file(paths[sha], sha)
        return self.put_tree(tree), len(missing), sum(sizes[sha] for sha in missing)

    # Files on their way in

    def tmp_file(self, prefix: str = "in-") -> Tuple[int, str]:
        """(descriptor, path) of a new file in `tmp/`, mode 0600; the caller renames or removes it."""
        folder = os.path.join(self.root, "tmp")
        _make(folder)
        return tempfile.mkstemp(prefix=prefix, dir=folder)

    def name_blob(self, path: str, sha: str) -> str:
        """Renames a verified and synced file from `tmp/` to its blob name: the folder, which is to be synced."""
        final = self.blob_path(sha)
        folder = os.path.dirname(final)
        _make(folder)
        os.rename(path, final)
        return folder

    def sweep(self, older_than_s: float = 86400.0) -> int:
        """Removes what crashed writers left in `tmp/` longer ago than that: how many files."""
        removed = 0
        folder = os.path.join(self.root, "tmp")
        if not os.path.isdir(folder):
            return 0
        limit = time.time() - older_than_s
        with os.scandir(folder) as found:
            for entry in found:
                try:
                    if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < limit:
                        os.unlink(entry.path)
                        removed += 1
                except FileNotFoundError:
                    pass  # its writer has just finished with it
        return removed


def _make(folder: str) -> None:
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        sync_folder(os.path.dirname(folder))


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(content) + 1) == content
    except FileNotFoundError:
        return False


def write_all(fd: int, content: bytes) -> None:
    """Writes all of `content`, however little one call takes. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view):]


def sync_folder(folder: PathLike) -> None:
    """Makes the names in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def usage_of(fs: MonkeyFS) -> Dict[str, int]:
    """{"free_bytes", "total_bytes"} of the file system that the store is, or would be, on."""
    folder = fs.root
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    found = os.statvfs(folder)
    return {"free_bytes": found.f_bavail * found.f_frsize, "total_bytes": found.f_blocks * found.f_frsize}
