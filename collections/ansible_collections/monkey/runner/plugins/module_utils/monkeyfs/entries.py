"""What a tree is: its entries, the checks that make it harmless, and its canonical form and id.

A tree that came from outside is data: `check` runs before anything is taken in or written out.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, Optional, Tuple

from .errors import MonkeyFSError, check_sha

Tree = Dict[str, Any]

MODE_FILE = 0o644
MODE_EXECUTABLE = 0o755
# Linux gives up (ELOOP) after 40 links in one path: path_resolution(7).
_MAX_LINKS = 40
# Twice Linux' PATH_MAX (4096) would still not be reachable by one call; deeper trees are not work of a person.
_MAX_PATH_BYTES = 4096
_KEYS = {
    "file": {"path", "type", "sha256", "size", "mode"},
    "link": {"path", "type", "target"},
    "dir": {"path", "type"},
}


def check_path(path: object) -> str:
    """A relative `/`-separated path without `.`, `..` or empty parts, valid as UTF-8; else MonkeyFSError."""
    if not isinstance(path, str):
        raise MonkeyFSError("a path in a tree must be text, not %.80r" % (path,))
    _check_text(path, path)
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise MonkeyFSError("path %r is not a plain relative path" % path)
    return path


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_text(text: str, path: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise MonkeyFSError("path %r is not valid UTF-8" % path) from None
    if "\0" in text or not text or size > _MAX_PATH_BYTES:
        raise MonkeyFSError("path %.200r is empty, too long, or holds a NUL" % path)


def _check_entry(entry: object) -> None:
    if not isinstance(entry, dict):
        raise MonkeyFSError("an entry of a tree must be an object, not %.80r" % (entry,))
    path = check_path(entry.get("path"))
    kind = entry.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise MonkeyFSError("%s: unknown type %.80r (expected file, link or dir)" % (path, kind))
    if set(entry) != _KEYS[kind]:
        raise MonkeyFSError("%s: a %s has the keys %s" % (path, kind, ", ".join(sorted(_KEYS[kind]))))
    if kind == "file":
        check_sha(entry["sha256"])
        size = entry["size"]
        if not _is_int(size) or size < 0:
            raise MonkeyFSError("%s: size must be a number of bytes, not %.80r" % (path, size))
        mode = entry["mode"]
        if not _is_int(mode) or mode not in (MODE_FILE, MODE_EXECUTABLE):
            raise MonkeyFSError("%s: mode must be 420 (0644) or 493 (0755), not %.80r" % (path, mode))
    elif kind == "link":
        target = entry["target"]
        if not isinstance(target, str):
            raise MonkeyFSError("%s: the target of a link must be text" % path)
        _check_text(target, path)


def _parents(path: str) -> List[str]:
    parts = path.split("/")
    return ["/".join(parts[:i]) for i in range(1, len(parts))]


def leaves(path: str, links: Dict[str, str]) -> bool:
    """Whether following the link at `path` can lead above the top of its tree.

    `links` maps every link of the tree to its target. Parts are walked as the kernel does, through other links too:
    a lexical check alone is passed by `a -> b/../..` when `b` is itself a link (path_resolution(7)).
    """
    todo = links[path].split("/")[::-1]
    if links[path].startswith("/"):
        return True
    at = path.split("/")[:-1]
    followed = 1
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        target = links.get("/".join(at))
        if target is not None:
            followed += 1
            if followed > _MAX_LINKS:
                return False  # the kernel refuses to follow it: it leads nowhere
            if target.startswith("/"):
                return True
            at.pop()
            todo.extend(target.split("/")[::-1])
    return False


def check(tree: object) -> Tree:
    """`tree` when it is well-formed and harmless, else MonkeyFSError that names the entry.

    Refused: unknown keys, paths that are not plain and relative, entries out of order or twice, entries beneath a file
    or a link, links that leave the tree, one sha256 with two sizes.
    """
    if not isinstance(tree, dict) or set(tree) != {"entries"} or not isinstance(tree["entries"], list):
        raise MonkeyFSError('a tree is {"entries": […]}')
    kinds: Dict[str, str] = {}
    links: Dict[str, str] = {}
    sizes: Dict[str, int] = {}
    folders: Dict[str, str] = {}
    last: Optional[str] = None
    for entry in tree["entries"]:
        _check_entry(entry)
        path = entry["path"]
        if last is not None and path <= last:
            raise MonkeyFSError("%s: entries must be sorted by path, each path once" % path)
        last = path
        kinds[path] = entry["type"]
        for parent in _parents(path):
            folders.setdefault(parent, path)
        if entry["type"] == "link":
            links[path] = entry["target"]
        elif entry["type"] == "file" and sizes.setdefault(entry["sha256"], entry["size"]) != entry["size"]:
            raise MonkeyFSError("%s: another entry gives its content another size" % path)
    for folder, path in folders.items():
        if folder in kinds:
            raise MonkeyFSError("%s lies beneath %s, which is a %s" % (path, folder, kinds[folder]))
    for path, target in links.items():
        if leaves(path, links):
            raise MonkeyFSError("link %s -> %s leaves the folder" % (path, target))
    return tree


def canonical(tree: Tree) -> bytes:
    """The one byte string of a tree: checked, keys sorted, no spaces, UTF-8 (the JSON of RFC 8785 for these types)."""
    check(tree)
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def tree_id(tree: Tree) -> str:
    """sha256 (hex) of the canonical form."""
    return hashlib.sha256(canonical(tree)).hexdigest()


def parse(content: bytes, expected_id: str) -> Tree:
    """The tree in `content`, checked against its id; MonkeyFSError when content and id do not belong together."""
    check_sha(expected_id)
    if hashlib.sha256(content).hexdigest() != expected_id:
        raise MonkeyFSError("tree %s does not have the content of its id" % expected_id)
    try:
        tree = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise MonkeyFSError("tree %s is not JSON" % expected_id) from None
    if canonical(tree) != content:
        raise MonkeyFSError("tree %s is not in canonical form" % expected_id)
    return check(tree)


def blobs_of(tree: Tree) -> Dict[str, int]:
    """{sha256: size in bytes} of every file, each content once."""
    return {entry["sha256"]: entry["size"] for entry in tree["entries"] if entry["type"] == "file"}


def summary(tree: Tree) -> Tuple[int, int]:
    """(number of files, bytes of all files; the same content in two files counts twice)."""
    sizes = [entry["size"] for entry in tree["entries"] if entry["type"] == "file"]
    return len(sizes), sum(sizes)
