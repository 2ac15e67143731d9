"""What there is to know about the Python interpreter that an environment is made with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

from .errors import EnvironmentBuildError

_QUESTION = """
import importlib.util, json, os, platform, sys, sysconfig
try:
    import ensurepip
    bundled = bool(ensurepip.version())
except Exception:
    bundled = False
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "implementation": platform.python_implementation(),
    "platform": sysconfig.get_platform(),
    "base": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "has_venv": importlib.util.find_spec("venv") is not None,
    "has_ensurepip": bundled,
}))
"""
_QUESTION_TIMEOUT_S = 60


@dataclass(frozen=True)
class Interpreter:
    """A Python on this host: ``version`` is "3.11", ``platform`` as sysconfig says, ``base`` the real program."""

    path: str
    version: str
    implementation: str
    platform: str
    base: str
    has_venv: bool
    has_ensurepip: bool


def inspect(python: str | None) -> Interpreter:
    """Ask ``python`` (a path, ``~`` allowed, or a name in PATH; None: the one that runs this) about itself.

    Raises EnvironmentBuildError when there is none of that name or it does not answer.
    """
    path = sys.executable if python is None else shutil.which(os.path.expanduser(python))
    if not path:
        raise EnvironmentBuildError(
            f"there is no Python interpreter {python!r} on this host: expected a path or a name in PATH"
        )
    try:
        answer = subprocess.run(
            [path, "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_QUESTION_TIMEOUT_S,
            check=True,
        )
        said = json.loads(answer.stdout)
        return Interpreter(
            path=path,
            version=str(said["version"]),
            implementation=str(said["implementation"]),
            platform=str(said["platform"]),
            base=str(said["base"]),
            has_venv=bool(said["has_venv"]),
            has_ensurepip=bool(said["has_ensurepip"]),
        )
    except subprocess.CalledProcessError as error:
        tail = error.stderr.decode("utf-8", "replace").strip()
        raise EnvironmentBuildError(f"{path} does not work as a Python interpreter", tail) from error
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise EnvironmentBuildError(f"{path} does not work as a Python interpreter: {error}") from error
