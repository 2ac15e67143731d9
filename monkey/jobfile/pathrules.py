"""Where the paths of a job file may lead: into its own folder, also through links."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monkey.errors import UsageProblem

if TYPE_CHECKING:
    from monkey.jobfile.model import DataItem, JobFile, PersistItem


def relative_path(text: str) -> str:
    """The path without `./`, `//` and a slash at its end.

    Raises ValueError when it is absolute or leaves the folder by `..`.
    """
    if not text or "\0" in text:
        raise ValueError("expected a path inside the folder of the job file")
    if text.startswith(("/", "~")):
        raise ValueError("expected a path inside the folder of the job file, not an absolute one")
    path = posixpath.normpath(text)
    if path == ".." or path.startswith("../"):
        raise ValueError("leaves the folder of the job file")
    return path


def check_paths(job: JobFile, folder: Path) -> None:
    """Check every path of a job file against the disk; `folder` is the folder that the job file stands in.

    `code.path` and the paths of `data` must be folders in it, also after links are followed; those of `persist` may
    not be there yet; none of `data` and `persist` may lie in another. The environment file must be there.
    Raises UsageProblem.
    """
    _existing(job, ("code", "path"), job.code.path, folder)
    taken: list[tuple[str, str, str]] = []
    sections: list[tuple[str, Sequence[DataItem | PersistItem]]] = [("data", job.data), ("persist", job.persist)]
    for section, items in sections:
        for i, item in enumerate(items):
            loc = (section, i, "path")
            field = job.field(loc)
            if item.path == ".":
                raise UsageProblem(field, "expected a folder inside the folder of the job file, not that folder itself")
            if section == "data":
                _existing(job, loc, item.path, folder)
            else:
                _inside(job, loc, item.path, folder)
                if (folder / item.path).exists() and not (folder / item.path).is_dir():
                    raise UsageProblem(field, f"{item.path!r} is a file; expected a folder")
            real = os.path.relpath(os.path.realpath(folder / item.path), os.path.realpath(folder))
            for other, path, other_real in taken:
                if _overlap(path, item.path) or _overlap(other_real, real):
                    raise UsageProblem(field, f"{item.path!r} overlaps {other} ({path!r}); expected separate folders")
            taken.append((f"{section}.{item.name}", item.path, real))
    _check_files(job, folder)


def _check_files(job: JobFile, folder: Path) -> None:
    if job.environment_file is not None and not (folder / job.environment_file).is_file():
        what = "" if job.run.env_file else f", which env_type {job.run.env_type} needs"
        raise UsageProblem(job.field(("run", "env_file")), f"no file {job.environment_file!r}{what}")
    if job.run.install_script is not None:
        loc = ("run", "install_script")
        script = posixpath.normpath(posixpath.join(job.code.path, job.run.install_script))
        _inside(job, loc, script, folder)
        if not (folder / script).is_file():
            raise UsageProblem(job.field(loc), f"no file {script!r}")


def _inside(job: JobFile, loc: tuple[str | int, ...], path: str, folder: Path) -> None:
    root = os.path.realpath(folder)
    if os.path.commonpath([root, os.path.realpath(folder / path)]) != root:
        raise UsageProblem(job.field(loc), f"{path!r} leads out of the folder of the job file through a link")


def _existing(job: JobFile, loc: tuple[str | int, ...], path: str, folder: Path) -> None:
    _inside(job, loc, path, folder)
    full = folder / path
    if not full.exists():
        raise UsageProblem(job.field(loc), f"no folder {path!r}")
    if not full.is_dir():
        raise UsageProblem(job.field(loc), f"{path!r} is a file; expected a folder")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")
