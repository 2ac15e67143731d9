"""The work folder of an attempt: code, data linked in, persisted folders laid over."""

from __future__ import annotations

import fcntl
import os
from typing import Any, Dict

from ..monkeyfs.blobs import MonkeyFS
from ..monkeyfs.errors import MonkeyFSError
from ..monkeyfs.folders import open_beneath, open_top, parts_beneath, remove
from ..monkeyfs.trees import materialise
from .files import ClientError

# Work folders hold what any umask of the user would allow; the home above them is closed to others.
_MODE = 0o755
# MONKEY_OUTPUT when nothing is persisted (docs/interfaces.md).
OUTPUT = "output"


def ensure_data(home: str, tree: str) -> str:
    """The folder of a data set, written out read-only if it is not yet there (once, whoever asks at the same time).

    Raises ClientError when the host lacks the tree or a blob, OSError.
    """
    folder = os.path.join(home, "data")
    os.makedirs(folder, 0o700, exist_ok=True)
    target = os.path.join(folder, tree)
    if os.path.isdir(target):
        return target
    lock = os.open(os.path.join(folder, f".{tree}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(target):
            _write(home, tree, target, "data set", readonly=True, replace=True)
    finally:
        os.close(lock)
    return target


def _write(home: str, tree: str, dest: str, what: str, **options: Any) -> None:
    store = MonkeyFS(os.path.join(home, "store"))
    try:
        if not store.has_tree(tree):
            raise ClientError(f"The host lacks the {what} {tree[:12]}: send it (module sync) before the launch.")
        materialise(store, store.get_tree(tree), dest, **options)
    except MonkeyFSError as error:
        raise ClientError(f"The {what} {tree[:12]} cannot be written out: {error}") from error


def nothing_to_write(spec: Dict[str, Any]) -> bool:
    """Whether the work folder is made in no time, since no tree has to be written out."""
    return spec["code"] is None and not spec["data"] and not any(item["tree"] for item in spec["persist"])


def build(home: str, work: str, spec: Dict[str, Any]) -> None:
    """Make the work folder. Raises ClientError, OSError (ENOSPC when the disk is full)."""
    if os.path.lexists(work):
        remove(work)
    if spec["code"] is None:
        os.mkdir(work, _MODE)
    else:
        _write(home, spec["code"], work, "code")
    for item in spec["data"]:
        _link(work, item["path"], ensure_data(home, item["tree"]))
    if not spec["persist"]:
        _folder(work, OUTPUT)
    for item in spec["persist"]:
        target = os.path.join(work, item["path"])
        if item["tree"]:
            _write(home, item["tree"], target, f"persisted folder {item['name']}", beneath=work)
        _folder(work, item["path"])


def _folder(work: str, path: str) -> None:
    """Make a folder below ``work``; links on the way are refused, since code may bring any."""
    top = open_top(work)
    try:
        os.close(open_beneath(top, parts_beneath(os.path.join(work, path), work), create=True))
    except MonkeyFSError as error:
        raise ClientError(f"The folder {path} cannot be made in the work folder: {error}") from error
    finally:
        os.close(top)


def _link(work: str, path: str, target: str) -> None:
    parent = os.path.dirname(path)
    if parent:
        _folder(work, parent)
    place = os.path.join(work, path)
    if os.path.lexists(place):
        remove(place)
    os.symlink(target, place)
