"""Tree -> folder: regular files, folders and checked links, made inside the folder or not at all (design rule 8)."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from .blobs import CHUNK_BYTES, open_regular
from .entries import MODE_EXECUTABLE, Tree, check
from .errors import MonkeyFSError
from .folders import PathLike, child, open_beneath, open_top, parts_beneath, remove, remove_at

if TYPE_CHECKING:
    from .blobs import MonkeyFS

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def materialise(
    fs: MonkeyFS,
    tree: Tree,
    dest: PathLike,
    readonly: bool = False,
    replace: bool = False,
    *,
    beneath: Optional[PathLike] = None,
) -> None:
    """Writes `tree` out as copies (an attempt must not change the store) in the folder `dest`.

    With `replace`, `dest` becomes exactly the tree, by one rename at the end. Without it the tree is laid over what is
    there: what has the name of an entry is replaced, the rest stays. `readonly` gives files 0444 (0555 when executable)
    and folders, `dest` too, 0555; `remove` takes such a folder away again. Other modes are those of the tree less the
    umask. No link is followed below `dest`, or below `beneath` when that is given.

    Raises MonkeyFSError (tree refused, blob missing or of a wrong size) and OSError (ENOSPC).
    """
    check(tree)
    if not replace:
        _write_at(fs, tree, dest, readonly, beneath)
        return
    target = os.path.abspath(dest)
    parent = os.path.dirname(target)
    if beneath is None:
        os.makedirs(parent, exist_ok=True)
    else:
        top_fd = open_top(beneath, create=True)
        try:
            os.close(open_beneath(top_fd, parts_beneath(parent, beneath), create=True))
        finally:
            os.close(top_fd)
    work = tempfile.mkdtemp(prefix=".new-", dir=parent)
    try:
        _write_at(fs, tree, os.path.join(work, "tree"), readonly, None)
        if os.path.lexists(target):
            os.rename(target, os.path.join(work, "old"))
        if readonly:
            os.chmod(os.path.join(work, "tree"), 0o755)  # a folder must be writable to move to another parent
        os.rename(os.path.join(work, "tree"), target)
        if readonly:
            os.chmod(target, 0o555)
    finally:
        remove(work)


def _write_at(fs: MonkeyFS, tree: Tree, dest: PathLike, readonly: bool, beneath: Optional[PathLike]) -> None:
    if beneath is None:
        fd = open_top(dest, create=True)
    else:
        top_fd = open_top(beneath, create=True)
        try:
            fd = open_beneath(top_fd, parts_beneath(dest, beneath), create=True)
        finally:
            os.close(top_fd)
    writer = _Writer(fs, fd, readonly)
    try:
        for entry in tree["entries"]:
            writer.entry(entry)
        writer.finish()
    finally:
        writer.close()


class _Writer:
    """Keeps the descriptors of the folders on the way to the entry at hand."""

    def __init__(self, fs: MonkeyFS, top_fd: int, readonly: bool) -> None:
        self.fs = fs
        self.readonly = readonly
        self.names: List[str] = []
        self.fds = [top_fd]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def finish(self) -> None:
        self._go([])
        if self.readonly:
            os.fchmod(self.fds[0], 0o555)

    def _go(self, parts: List[str]) -> int:
        """The descriptor of the folder `parts`, made when missing."""
        same = 0
        while same < min(len(parts), len(self.names)) and parts[same] == self.names[same]:
            same += 1
        while len(self.names) > same:
            self.names.pop()
            fd = self.fds.pop()
            if self.readonly:
                os.fchmod(fd, 0o555)
            os.close(fd)
        for name in parts[same:]:
            fd = child(self.fds[-1], name, create=True)
            self.fds.append(fd)
            self.names.append(name)
            if self.readonly:
                # Entries of one folder need not be neighbours in the order of paths: "a-b" lies between "a" and "a/c".
                os.fchmod(fd, 0o755)
        return self.fds[-1]

    def entry(self, entry: Dict[str, Any]) -> None:
        parts = entry["path"].split("/")
        if entry["type"] == "dir":
            self._go(parts)
            return
        fd = self._go(parts[:-1])
        name = parts[-1].encode("utf-8")
        if entry["type"] == "link":
            self._place(fd, name, lambda at: os.symlink(entry["target"].encode("utf-8"), at, dir_fd=fd))
        else:
            self._place(fd, name, lambda at: self._copy(entry, fd, at))

    def _place(self, fd: int, name: bytes, make: Callable[[bytes], None]) -> None:
        try:
            make(name)
        except FileExistsError:
            # Made beside it and renamed over it, so that a reader sees the old or the new one.
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                remove_at(fd, name)
            beside = b".mkfs-" + os.urandom(8).hex().encode("ascii")
            try:
                make(beside)
                os.rename(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                remove_at(fd, beside)
                raise

    def _copy(self, entry: Dict[str, Any], fd: int, name: bytes) -> None:
        size = entry["size"]
        try:
            source = open_regular(self.fs.blob_path(entry["sha256"]), follow=False)
        except FileNotFoundError:
            raise MonkeyFSError("%s: blob %s is missing" % (entry["path"], entry["sha256"])) from None
        try:
            if os.fstat(source).st_size != size:
                raise MonkeyFSError("%s: blob %s is damaged (wrong size)" % (entry["path"], entry["sha256"]))
            executable = entry["mode"] == MODE_EXECUTABLE
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(name, flags, 0o755 if executable else 0o644, dir_fd=fd)
            try:
                if copy_bytes(source, target, size) != size:
                    raise MonkeyFSError("%s: blob %s ended early" % (entry["path"], entry["sha256"]))
                if self.readonly:
                    os.fchmod(target, 0o555 if executable else 0o444)
            finally:
                os.close(target)
        finally:
            os.close(source)


def copy_bytes(source: int, target: int, size: int) -> int:
    """Copies up to `size` bytes between descriptors, in the kernel where that works: how many were copied."""
    done = 0
    in_kernel = getattr(os, "copy_file_range", None)  # Linux only
    while in_kernel is not None and done < size:
        try:
            count = in_kernel(source, target, min(size - done, 1 << 30))
        except OSError as error:
            if error.errno in _FULL:
                raise
            break  # EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, EPERM: these file systems cannot
        if count == 0:
            break  # some file systems say so before the end: the plain copy below tells the truth
        done += count
    while done < size:
        chunk = os.read(source, min(CHUNK_BYTES, size - done))
        if not chunk:
            break
        view = memoryview(chunk)
        while view:
            count = os.write(target, view)
            view = view[count:]
            done += count
    return done
