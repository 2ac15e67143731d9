"""Conda environments from an environment.yml, by conda, mamba or micromamba, whichever the host has."""

from __future__ import annotations

import os
import platform
import shutil
from typing import Any, Mapping

from .building import BuildLog, build_folder, is_complete
from .errors import EnvironmentBuildError
from .keys import environment_key, normalised_text

# What every conda environment has, whatever is in it.
_MADE = os.path.join("conda-meta", "history")
_PROGRAMS = ("mamba", "conda", "micromamba")
_ROOTS = (
    "~/miniforge3",
    "~/mambaforge",
    "~/miniconda3",
    "~/anaconda3",
    "/opt/conda",
    "/opt/miniforge3",
    "/opt/miniconda3",
)


class CondaEnvironment:
    """The environment of one environment.yml in one client home. Names and prefixes in the file do not count."""

    def __init__(self, home: str, content: str) -> None:
        self._home = home
        self._content = content
        self.name = "conda-" + environment_key(normalised_text(content), platform.system(), platform.machine())
        self.path = os.path.join(home, "envs", self.name)

    def result(self) -> dict[str, Any]:
        """Return what an attempt's specification says about this environment."""
        return {"kind": "conda", "path": self.path}

    def is_there(self) -> bool:
        """Tell whether it is built already."""
        return is_complete(self.path, "bin")

    def build(self) -> tuple[bool, str]:
        """Build it unless it is there; return (whether it was built now, the tool's last lines).

        Raises EnvironmentBuildError when there is no conda or it fails.
        """
        return build_folder(self._home, self.name, "bin", self._build)

    def _build(self, folder: str, work: str, log: BuildLog) -> dict[str, Any]:
        conda = find_conda(os.environ)
        if conda is None:
            raise EnvironmentBuildError(
                "there is no conda, mamba or micromamba on this host: expected CONDA_EXE, one of them in PATH, or "
                "~/miniforge3 (role monkey.runner.install, install_items: [conda], puts it there)"
            )
        definition = os.path.join(work, "environment.yml")
        with open(definition, "w", encoding="utf-8", newline="\n") as file:
            file.write(self._content)
        # micromamba has no `env create` before 2.0; its `create` takes the same file.
        verb = ["create"] if os.path.basename(conda).startswith("micromamba") else ["env", "create"]
        argv = [conda, *verb, "--prefix", folder, "--file", definition]
        answers = {"CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true", "CONDA_JSON": "false"}
        code = log.run(argv, cwd=work, extra_env=answers)
        if code != 0:
            name = os.path.basename(conda)
            raise EnvironmentBuildError(f"{name} could not make the environment (exit code {code})", log.tail())
        if not os.path.exists(os.path.join(folder, _MADE)):
            raise EnvironmentBuildError(f"{conda} ended well but made no environment in {folder}", log.tail())
        shutil.copyfile(definition, os.path.join(folder, "environment.yml"))
        return {"kind": "conda", "tool": conda}


def find_conda(env: Mapping[str, str]) -> str | None:
    """Return the path of the program to call: CONDA_EXE or MAMBA_EXE, then PATH, then where installers put it."""
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        named = env.get(variable)
        if named and os.access(named, os.X_OK):
            return named
    home = env.get("HOME") or os.path.expanduser("~")
    roots = [root.replace("~", home, 1) for root in _ROOTS]
    beside = [os.path.join(root, "bin") for root in [*roots, os.path.join(home, ".local"), home]]
    for program in _PROGRAMS:
        path = shutil.which(program, path=env.get("PATH"))
        if path:
            return path
    for folder in beside:
        for program in _PROGRAMS:
            path = shutil.which(program, path=folder)
            if path:
                return path
    return None
