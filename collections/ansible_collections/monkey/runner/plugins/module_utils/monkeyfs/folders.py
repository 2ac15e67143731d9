"""Walking, making and removing folders through descriptors, so that no link put in the way is ever followed."""

from __future__ import annotations

import os
import stat
from typing import List, Optional, Union

from .errors import MonkeyFSError

PathLike = Union[str, "os.PathLike[str]"]
# Each level keeps one descriptor open and one Python frame on the stack.
MAX_DEPTH = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def open_top(path: PathLike, create: bool = False) -> int:
    """A descriptor of the folder `path`, which the caller trusts: links on the way to it are followed."""
    if create:
        os.makedirs(path, exist_ok=True)
    return os.open(path, _FOLDER)


def parts_beneath(path: PathLike, top: PathLike) -> List[str]:
    """The parts of `path` below `top`; MonkeyFSError when it does not lie beneath it by name."""
    relative = os.path.relpath(os.path.abspath(path), os.path.abspath(top))
    parts = [] if relative == "." else relative.split(os.sep)
    if os.pardir in parts:
        raise MonkeyFSError("%s does not lie beneath %s" % (os.fspath(path), os.fspath(top)))
    return parts


def open_beneath(top_fd: int, parts: List[str], create: bool = False) -> int:
    """A new descriptor of the folder at `parts` below `top_fd`, following no link.

    With `create`, missing folders are made, and a file or link that stands where a folder belongs is replaced.
    Raises OSError (FileNotFoundError, NotADirectoryError) without `create`.
    """
    fd = os.dup(top_fd)
    try:
        for part in parts:
            below = child(fd, part, create)
            os.close(fd)
            fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


def child(parent_fd: int, name: str, create: bool = False) -> int:
    """A descriptor of the folder `name` in `parent_fd`; see `open_beneath`. A link is NotADirectoryError."""
    raw = name.encode("utf-8", "surrogateescape")
    try:
        return os.open(raw, _FOLDER | os.O_NOFOLLOW, dir_fd=parent_fd)
    except FileNotFoundError:
        if not create:
            raise
    except OSError:
        # A link gives ELOOP or ENOTDIR, depending on the system; other failures are told as they are.
        if not create or stat.S_ISDIR(os.stat(raw, dir_fd=parent_fd, follow_symlinks=False).st_mode):
            raise
        os.unlink(raw, dir_fd=parent_fd)
    try:
        os.mkdir(raw, dir_fd=parent_fd)
    except FileExistsError:
        pass  # made by someone else meanwhile: the open below still refuses a link
    return os.open(raw, _FOLDER | os.O_NOFOLLOW, dir_fd=parent_fd)


def remove(path: PathLike) -> bool:
    """Removes a file, link or folder with all in it, read-only folders too; False when there was nothing.

    No link is followed. Raises OSError.
    """
    parent, name = os.path.split(os.path.abspath(path))
    try:
        parent_fd = os.open(parent, _FOLDER)
    except FileNotFoundError:
        return False
    try:
        return remove_at(parent_fd, os.fsencode(name))
    finally:
        os.close(parent_fd)


def remove_at(parent_fd: int, name: bytes, known_folder: Optional[bool] = None) -> bool:
    """`remove` for the entry `name` of the folder `parent_fd`."""
    try:
        if known_folder is None:
            known_folder = stat.S_ISDIR(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode)
        if not known_folder:
            os.unlink(name, dir_fd=parent_fd)
            return True
        try:
            fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent_fd)
        except PermissionError:
            # No O_NOFOLLOW for chmod: a folder without permissions, in a folder that only we can write in.
            os.chmod(name, 0o700, dir_fd=parent_fd)
            fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent_fd)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            try:
                os.fchmod(fd, 0o700)
            except PermissionError:
                pass  # somebody else's folder: removing what is in it will tell
        with os.scandir(fd) as found:
            names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in found]
        for below, is_folder in names:
            remove_at(fd, below, is_folder)
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=parent_fd)
    except FileNotFoundError:
        pass
    return True
