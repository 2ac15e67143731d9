"""Container images, built from the text of a Dockerfile or pulled by name, with docker or podman."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from typing import Any

from .building import BuildLog, locked, prepare
from .errors import EnvironmentBuildError
from .keys import environment_key, normalised_text

_ENGINES = ("docker", "podman")
_ANSWER_TIMEOUT_S = 60
# A reference as distribution/reference has it (registry/name:tag@digest), loosely: what matters is no leading dash.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,510}")


class ContainerEnvironment:
    """An image on this host, named or made from a Dockerfile; one of ``content`` and ``image`` has to be given.

    Raises EnvironmentBuildError when ``image`` is no name of an image, or no engine on this host answers.
    """

    def __init__(self, home: str, content: str | None, image: str | None) -> None:
        if image is not None and not _IMAGE.fullmatch(image):
            raise EnvironmentBuildError(f"{image!r} is no name of an image: expected registry/name:tag")
        self._home = home
        self._content = content
        key = environment_key(normalised_text(content or image or ""), platform.machine())
        self._name = f"docker-{key}"
        self.image = image if image is not None else f"monkey-{key}"
        self._engine = find_engine()

    def result(self) -> dict[str, Any]:
        """Return what an attempt's specification says about this environment."""
        return {"kind": "docker", "engine": os.path.basename(self._engine), "image": self.image, "options": []}

    def is_there(self) -> bool:
        """Tell whether the engine has the image."""
        return _answers([self._engine, "image", "inspect", self.image])

    def build(self) -> tuple[bool, str]:
        """Build or pull the image unless it is there; return (whether it was now, the engine's last lines).

        Raises EnvironmentBuildError when the engine fails.
        """
        if self.is_there():
            return False, ""
        base = os.path.join(prepare(self._home), self._name)
        with locked(base + ".lock") as lock_fd:
            if self.is_there():
                return False, ""
            log = BuildLog(base + ".log", lock_fd)
            if self._content is None:
                argv, did, cwd = [self._engine, "pull", self.image], "pull", os.path.dirname(base)
                code = log.run(argv, cwd=cwd)
            else:
                did, code = "build", self._build_image(base + ".work", self._content, log)
            name = os.path.basename(self._engine)
            if code != 0:
                raise EnvironmentBuildError(
                    f"{name} could not {did} the image {self.image} (exit code {code})", log.tail()
                )
            return True, log.tail()

    def _build_image(self, work: str, content: str, log: BuildLog) -> int:
        """Build with an empty context: the code is not part of the image, it is mounted when the job runs."""
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(os.path.join(work, "context"), mode=0o700)
        try:
            dockerfile = os.path.join(work, "Dockerfile")
            with open(dockerfile, "w", encoding="utf-8", newline="\n") as file:
                file.write(content)
            context = os.path.join(work, "context")
            return log.run([self._engine, "build", "--tag", self.image, "--file", dockerfile, context], cwd=work)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def find_engine() -> str:
    """Return the path of the first engine that works here: docker whose daemon answers, else podman.

    Raises EnvironmentBuildError when there is none.
    """
    silent = []
    for engine in _ENGINES:
        path = shutil.which(engine)
        if path is None:
            continue
        if _answers([path, "version"]):
            return path
        silent.append(engine)
    if silent:
        raise EnvironmentBuildError(
            f"{' and '.join(silent)} on this host does not answer: expected a running daemon that this user may use"
        )
    raise EnvironmentBuildError(
        "neither docker nor podman is on this host (role monkey.runner.install, install_items: [docker], adds one)"
    )


def _answers(argv: list[str]) -> bool:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
