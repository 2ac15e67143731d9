"""Which commit a job's code came from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TypedDict

# A status of a repository of 100,000 files takes seconds on a cold disk; a record of the commit is not worth more.
_TIMEOUT_S = 20.0


class GitInfo(TypedDict):
    """The commit (hex), the branch (None when detached), and whether there are uncommitted changes."""

    commit: str
    branch: str | None
    dirty: bool


def git_info(folder: Path) -> GitInfo | None:
    """The state of the git work tree around `folder`; changes are looked for below `folder` only.

    None when there is no git, no repository, no commit, or git does not answer: the record is a help, never a reason
    to stop.
    """
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), "status", "--porcelain=v2", "--branch"]
    try:
        done = subprocess.run(
            [*command, "--untracked-files=normal", "--", ".", ":(exclude)monkey-output"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    info: GitInfo = {"commit": "", "branch": None, "dirty": False}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith("# branch.oid "):
            commit = line.split(" ", 2)[2]
            info["commit"] = "" if commit == "(initial)" else commit
        elif line.startswith("# branch.head "):
            branch = line.split(" ", 2)[2]
            info["branch"] = None if branch == "(detached)" else branch
        elif line and not line.startswith("#"):
            info["dirty"] = True
    return info if info["commit"] else None
