"""Bringing a job's results to this folder: what it persisted, and its log."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs, trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS, MonkeyFSError

from monkey.apiclient import Api, Json
from monkey.errors import MonkeyError, UsageProblem

DEFAULT_DEST = "monkey-output"
LOG_NAME = "monkey.log"
_SHAS_PER_PACK = 2000


@dataclass
class Fetched:
    """What came: the folder of the job, files and bytes written now, persisted folders that hold something.

    `skipped` names, with the reason, what the host could not take from a persisted folder.
    """

    folder: Path
    files: int = 0
    size_bytes: int = 0
    persist: list[str] = field(default_factory=list)
    log_bytes: int = 0
    skipped: list[str] = field(default_factory=list)


def fetch(api: Api, job: Json, dest: Path, arrived: Callable[[int], None] = lambda _count: None) -> Fetched:
    """Writes the persisted folders of `job` as they are now, and its log, into `dest/<JUID>/`.

    A file that is there already with the same content is not fetched again; what else lies there is left alone.

    Args:
        api: the core.
        job: the job.
        dest: made when it is missing.
        arrived: told the number of bytes as they come.

    Raises:
        UsageProblem: `dest` cannot be written, or the disk is full.
        MonkeyError: what came is not what was announced.
    """
    fetched = Fetched(dest / str(job["juid"]))
    try:
        fetched.folder.mkdir(parents=True, exist_ok=True)
        for item in api.collect(job["juid"]):
            if item.get("tree"):
                _folder(api, item, fetched, arrived)
            fetched.skipped += [f"{item['path']}/{one['path']}: {one['why']}" for one in item.get("skipped") or []]
        _log(api, job, fetched)
    except MonkeyFSError as error:
        raise MonkeyError(f"{job['juid']}: {error}") from error
    except OSError as error:
        place = error.filename or fetched.folder
        raise UsageProblem("--dest", f"{os.fsdecode(place)} cannot be written: {error.strerror}") from error
    return fetched


def _folder(api: Api, item: Json, fetched: Fetched, arrived: Callable[[int], None]) -> None:
    tree = api.tree(item["tree"])
    if trees.tree_id(tree) != item["tree"]:
        raise MonkeyFSError(f"tree {item['tree'][:12]} does not have the content of its id")
    # From another machine: a path is taken only when it is one of a tree.
    trees.check({"entries": [{"path": item["path"], "type": "dir"}]})
    place = fetched.folder / item["path"]
    here: dict[str, Json] = {}
    if place.is_dir() and not place.is_symlink():
        found, _ = trees.scan(place, problem=lambda _path, _why: None, beneath=fetched.folder)
        here = {entry["path"]: entry for entry in found["entries"]}
    new = {"entries": [entry for entry in tree["entries"] if here.get(entry["path"]) != entry]}
    blobs = trees.blobs_of(new)
    store = tempfile.mkdtemp(prefix=".fetching-", dir=fetched.folder)
    try:
        fs = MonkeyFS(store)
        shas = list(blobs)
        for start in range(0, len(shas), _SHAS_PER_PACK):
            announced = {sha: blobs[sha] for sha in shas[start : start + _SHAS_PER_PACK]}
            with api.pack(list(announced)) as stream:
                packs.read(stream, fs, announced)
            arrived(sum(announced.values()))
        trees.materialise(fs, new, place, beneath=fetched.folder)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    files, size_bytes = trees.summary(new)
    fetched.files += files
    fetched.size_bytes += size_bytes
    fetched.persist.append(item["path"])


def _log(api: Api, job: Json, fetched: Fetched) -> None:
    handle, name = tempfile.mkstemp(prefix=".fetching-", dir=fetched.folder)
    try:
        with os.fdopen(handle, "wb") as out:
            for data in api.log(job["juid"]):
                out.write(data)
            fetched.log_bytes = out.tell()
        Path(name).chmod(0o644)
        Path(name).rename(fetched.folder / LOG_NAME)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
