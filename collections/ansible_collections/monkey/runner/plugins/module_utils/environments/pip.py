"""Virtual environments from a requirements file: by uv where it is there, else by venv and pip."""

from __future__ import annotations

import os
import shutil
from typing import Any, Mapping

from .building import BuildLog, build_folder, is_complete
from .errors import EnvironmentBuildError, PipMissingError
from .interpreter import Interpreter, inspect
from .keys import environment_key, normalised_requirements
from .pip_config import pip_sources, uv_is_configured

_NEEDS = os.path.join("bin", "python")


class PipEnvironment:
    """The environment of one requirements text for one interpreter in one client home.

    ``pip_wheel`` is the path of a pip wheel on this host, for an interpreter without ensurepip; uv is not tried then.
    Raises EnvironmentBuildError when the interpreter does not exist.
    """

    def __init__(self, home: str, content: str, python: str | None = None, pip_wheel: str | None = None) -> None:
        self._home = home
        self._content = content
        self._pip_wheel = pip_wheel
        self._python: Interpreter = inspect(python)
        found = self._python
        key = environment_key(
            normalised_requirements(content), found.implementation, found.version, found.platform, found.base
        )
        self.name = f"pip-{key}"
        self.path = os.path.join(home, "envs", self.name)

    def result(self) -> dict[str, Any]:
        """Return what an attempt's specification says about this environment."""
        return {"kind": "pip", "path": self.path}

    def is_there(self) -> bool:
        """Tell whether it is built already."""
        return is_complete(self.path, _NEEDS)

    def build(self) -> tuple[bool, str]:
        """Build it unless it is there; return (whether it was built now, the tools' last lines).

        Raises PipMissingError when the interpreter lacks pip and no wheel was given, else EnvironmentBuildError.
        """
        return build_folder(self._home, self.name, _NEEDS, self._build)

    def _build(self, folder: str, work: str, log: BuildLog) -> dict[str, Any]:
        requirements = os.path.join(work, "requirements.txt")
        with open(requirements, "w", encoding="utf-8", newline="\n") as file:
            file.write(self._content)
        uv = None if self._pip_wheel else find_uv(os.environ)
        if uv and self._with_uv(uv, folder, work, requirements, log):
            tool = "uv"
        else:
            shutil.rmtree(folder, ignore_errors=True)
            self._with_pip(folder, work, requirements, log)
            tool = "pip"
        shutil.copyfile(requirements, os.path.join(folder, "requirements.txt"))
        return {"kind": "pip", "tool": tool, "python": self._python.base, "version": self._python.version}

    def _with_uv(self, uv: str, folder: str, work: str, requirements: str, log: BuildLog) -> bool:
        extra = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
        options = ["--no-config"] if os.environ.get("UV_NO_CONFIG") else []
        if not uv_is_configured(os.environ):
            sources = pip_sources(os.environ)
            config = os.path.join(work, "uv.toml")
            with open(config, "w", encoding="utf-8") as file:
                file.write(sources.as_uv_toml())
            if sources.cert:
                extra.setdefault("SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE", sources.cert))
            options = ["--config-file", config]
        make = [uv, "venv", *options, "--no-project", "--python", self._python.path]
        # A job expects pip in its environment. Where the index does not have it, an environment without it will do.
        if log.run([*make, "--seed", folder], cwd=work, extra_env=extra) != 0:
            shutil.rmtree(folder, ignore_errors=True)
            if log.run([*make, folder], cwd=work, extra_env=extra) != 0:
                return False
        python = os.path.join(folder, _NEEDS)
        install = [uv, "pip", "install", *options, "--python", python, "--requirement", requirements]
        if log.run(install, cwd=work, extra_env=extra) == 0:
            return True
        log.note("uv failed: pip is tried")
        return False

    def _with_pip(self, folder: str, work: str, requirements: str, log: BuildLog) -> None:
        found = self._python
        if not found.has_venv:
            raise EnvironmentBuildError(f"{found.path} has no module venv: install python3-venv", log.tail())
        if not found.has_ensurepip and not self._pip_wheel:
            raise PipMissingError(
                f"{found.path} has no ensurepip and this host no uv that works: install python3-venv", log.tail()
            )
        without = [] if found.has_ensurepip else ["--without-pip"]
        if log.run([found.path, "-m", "venv", *without, folder], cwd=work) != 0:
            raise EnvironmentBuildError(f"{found.path} -m venv failed: {_reason(log.tail())}", log.tail())
        python = os.path.join(folder, _NEEDS)
        quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        if not found.has_ensurepip:
            # A wheel is a zip file that Python can run from: the pip in it installs itself.
            wheel = str(self._pip_wheel)
            runnable = os.path.join(wheel, "pip")
            if log.run([python, runnable, "install", *quiet, "--no-index", "--no-deps", wheel], cwd=work) != 0:
                raise EnvironmentBuildError(f"pip could not be put into {folder}: {_reason(log.tail())}", log.tail())
        if log.run([python, "-m", "pip", "install", *quiet, "--requirement", requirements], cwd=work) != 0:
            raise EnvironmentBuildError(f"pip could not install the requirements: {_reason(log.tail())}", log.tail())


def find_uv(env: Mapping[str, str]) -> str | None:
    """Return the path of uv: from PATH, or where its installer puts it (not in the PATH of a non-login shell)."""
    home = env.get("HOME") or os.path.expanduser("~")
    return shutil.which("uv", path=env.get("PATH")) or shutil.which(
        "uv", path=os.pathsep.join([os.path.join(home, ".local", "bin"), os.path.join(home, ".cargo", "bin")])
    )


def _reason(tail: str) -> str:
    """Return the line that says most: the last that starts with ERROR, else the last that is not empty."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    if errors:
        return errors[-1].split(":", 1)[-1].strip() or errors[-1]
    return lines[-1] if lines else "it printed nothing"
