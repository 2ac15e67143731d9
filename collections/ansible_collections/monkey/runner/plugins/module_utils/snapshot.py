"""A researcher's folder on the control machine -> a tree, less what `.gitignore` and `code.ignore` leave out.

The rules are git's (gitignore(5)): a pattern of a deeper file wins over one of a shallower file, the last matching
pattern of one file wins, and a folder that is left out is not entered, so that nothing in it can come back.
`code.ignore` stands above all of them, as patterns of git's command line do.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .monkeyfs.blobs import open_regular
from .monkeyfs.errors import MonkeyFSError, check_sha
from .monkeyfs.folders import PathLike
from .monkeyfs.trees import Tree, scan, summary, tree_id

try:
    import pathspec

    HAS_PATHSPEC = True
except ImportError:  # the control machine of an ops person without the driver
    HAS_PATHSPEC = False

ALWAYS_IGNORED = frozenset((".git", "monkey-output"))
# A longer file of patterns is not one that a person wrote.
_MAX_GITIGNORE_BYTES = 1 << 20
_CACHE_VERSION = 1


@dataclass(frozen=True)
class Snapshot:
    """A folder as it was read: its tree, {sha256: absolute path} of its files, their number and size in bytes."""

    tree: Tree
    paths: Dict[str, str]
    files: int
    size_bytes: int

    @property
    def id(self) -> str:
        """The id of the tree."""
        return tree_id(self.tree)


def snapshot(
    folder: PathLike,
    ignore: Sequence[str] = (),
    use_gitignore: bool = True,
    cache_file: Optional[PathLike] = None,
) -> Snapshot:
    """Reads `folder`, without `.git` and `monkey-output` at any depth.

    `ignore` are patterns in gitignore's form, relative to `folder`; the original Monkey's `data**` means the folder
    `data` and all in it. `.gitignore` files count from the top of the git repository that `folder` lies in.
    With `cache_file`, files that have not changed since the last snapshot are not read again; losing that file costs
    time and nothing else.

    Raises MonkeyFSError, naming the path, for what cannot be taken: see `monkeyfs.trees.scan`.
    """
    if not HAS_PATHSPEC:
        raise MonkeyFSError("the Python package pathspec is missing on this machine: pip install pathspec")
    top = os.path.abspath(folder)
    if not os.path.isdir(top):
        raise MonkeyFSError("%s: expected a folder" % top)
    rules = _Rules(top, ignore, use_gitignore)
    cache = _load_cache(cache_file, top)
    before = dict(cache)
    try:
        tree, paths = scan(top, skip=rules.skip, cache=cache)
    except OSError as error:
        raise MonkeyFSError("%s: cannot be read: %s" % (top, error.strerror)) from error
    if cache_file is not None and cache != before:
        _save_cache(cache_file, top, cache)
    files, size_bytes = summary(tree)
    return Snapshot(tree, paths, files, size_bytes)


class _Patterns:
    """The patterns of one source, asked about one entry at a time.

    pathspec makes the regular expressions. Its own matching also counts a pattern that fits a folder above the entry,
    which is right for single paths, but not here: the walk has asked about that folder already, perhaps with another
    answer (`!x.py` brings the folder `x.py` back, not all in it).
    """

    def __init__(self, lines: Sequence[str], strict: bool = False) -> None:
        """git passes over lines that are no pattern; with `strict` they are a ValueError that holds the line."""
        self._last_first: List[Tuple[bool, bool, re.Pattern[str]]] = []
        for line in lines:
            text = line if line.endswith("\\ ") else line.rstrip()
            try:
                found = list(pathspec.GitIgnoreSpec.from_lines([text.rstrip("/")]).patterns)
            except (ValueError, re.error):  # pathspec lets the second through for ranges such as [z-a]
                found = []
            rules = [
                (bool(pattern.include), text.endswith("/"), pattern.regex)
                for pattern in found
                if isinstance(pattern, pathspec.RegexPattern) and pattern.include is not None and pattern.regex
            ]
            if strict and not rules:
                raise ValueError(line)
            self._last_first[:0] = rules
        self.hides_all = len(self._last_first) == 1 and [text.strip() for text in lines if text.strip()] == ["*"]

    def __bool__(self) -> bool:
        return bool(self._last_first)

    def ask(self, path: str, is_folder: bool) -> Optional[bool]:
        """True: leave it out; False: take it; None: no pattern says anything."""
        for leave_out, only_folders, regex in self._last_first:
            if is_folder or not only_folders:
                match = regex.search(path)
                # pathspec's one group marks the slash after a folder above that fitted.
                if match is not None and match.lastindex is None:
                    return leave_out
        return None


class _Rules:
    def __init__(self, top: str, ignore: Sequence[str], use_gitignore: bool) -> None:
        self._top = top
        self._gitignore = use_gitignore
        self._first = _own_patterns(ignore)
        self._by_folder: Dict[str, _Patterns] = {}
        self._above = _patterns_above(top) if use_gitignore else []

    def skip(self, path: str, is_folder: bool) -> bool:
        """Whether an entry is left out; the folder that it lies in is not."""
        folder, _slash, name = path.rpartition("/")
        if name in ALWAYS_IGNORED:
            return True
        found = self._first.ask(path, is_folder)
        if found is None and self._gitignore:
            found = self._by_git(folder, path, is_folder)
        if not found and is_folder and self._gitignore:
            # Tools mark folders that are nobody's work (.venv, caches) with a .gitignore of one line, `*`.
            return self._of(path).hides_all
        return bool(found)

    def _by_git(self, folder: str, path: str, is_folder: bool) -> Optional[bool]:
        while True:
            found = self._of(folder).ask(path[len(folder) + 1 :] if folder else path, is_folder)
            if found is not None:
                return found
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        for prefix, patterns in self._above:
            found = patterns.ask(prefix + path, is_folder)
            if found is not None:
                return found
        return None

    def _of(self, folder: str) -> _Patterns:
        if folder not in self._by_folder:
            self._by_folder[folder] = _read_patterns(os.path.join(self._top, folder, ".gitignore"))
        return self._by_folder[folder]


def _own_patterns(ignore: Sequence[str]) -> _Patterns:
    lines = []
    for pattern in ignore:
        line = pattern
        # For git `data**` is `data*`, `data_loader.py` too; the original Monkey meant the folder.
        if len(line) > 2 and line.endswith("**") and line[-3] not in "/*\\":
            line = line[:-2]
        lines.append(line)
        try:
            _Patterns(["" if "\n" in line or "\0" in line else line], strict=True)
        except ValueError:
            raise MonkeyFSError(
                "code.ignore: %r is not a pattern (expected the form of a .gitignore line)" % pattern
            ) from None
    return _Patterns(lines)


def _read_patterns(path: str) -> _Patterns:
    try:
        fd = open_regular(path, follow=False)  # as git since 2.32: a linked .gitignore does not count
    except (OSError, MonkeyFSError):
        return _Patterns([])
    with open(fd, "rb") as file:
        text = file.read(_MAX_GITIGNORE_BYTES).decode("utf-8-sig", "surrogateescape")
    return _Patterns([line[:-1] if line.endswith("\r") else line for line in text.split("\n")])


def _patterns_above(top: str) -> List[Tuple[str, _Patterns]]:
    """Patterns of the repository that `top` lies in, from above `top`, deepest first, each with the path from there.

    None of them when they leave out `top` itself: a home folder that is a repository with `*` in its .gitignore does
    not mean the projects in it.
    """
    repository = top
    while not os.path.lexists(os.path.join(repository, ".git")):
        repository, before = os.path.dirname(repository), repository
        if repository == before:
            return []
    found = []
    folder = top
    while folder != repository:
        folder = os.path.dirname(folder)
        found.append((os.path.relpath(top, folder) + "/", _read_patterns(os.path.join(folder, ".gitignore"))))
    prefix = "" if top == repository else os.path.relpath(top, repository) + "/"
    found.append((prefix, _read_patterns(os.path.join(repository, ".git", "info", "exclude"))))
    for prefix, patterns in found:
        parts = prefix.rstrip("/").split("/") if prefix else []
        if any(patterns.ask("/".join(parts[: i + 1]), True) for i in range(len(parts))):
            return []
    return [(prefix, patterns) for prefix, patterns in found if patterns]


def _load_cache(cache_file: Optional[PathLike], top: str) -> Dict[str, List[Any]]:
    if cache_file is None:
        return {}
    try:
        with open(cache_file, encoding="utf-8") as file:
            content = json.load(file)
        if content["version"] != _CACHE_VERSION or content["folder"] != top:
            return {}
        for stamp in content["files"].values():
            if len(stamp) != 5 or not all(isinstance(number, int) for number in stamp[:4]):
                return {}
            check_sha(stamp[4])
        return dict(content["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _save_cache(cache_file: PathLike, top: str, cache: Dict[str, List[Any]]) -> None:
    path = os.path.abspath(cache_file)
    beside = None
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd, beside = tempfile.mkstemp(prefix=".cache-", dir=os.path.dirname(path))
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"version": _CACHE_VERSION, "folder": top, "files": cache}, file)
        os.rename(beside, path)
        beside = None
    except (OSError, ValueError):
        pass  # only time is lost
    finally:
        if beside is not None:
            try:
                os.unlink(beside)
            except OSError:
                pass
