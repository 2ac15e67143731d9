"""Container images; the engines, outside programs, are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.environments.container import ContainerEnvironment
from ansible_collections.monkey.runner.plugins.module_utils.environments.errors import EnvironmentBuildError

# Knows the images in the file $LOG.images.
_ENGINE = """
case "$1" in
  version) exit 0;;
  image) grep -qx "$3" $LOG.images 2>/dev/null;;
  pull) echo "$2" >> $LOG.images;;
  build) echo "$3" >> $LOG.images; cat "$5" >> $LOG.images; ls -A "$6" >> $LOG.images;;
esac
"""


def _did(calls: Path) -> list[str]:
    return [line.split()[0] for line in calls.read_text().splitlines() if line.split()[0] in ("pull", "build")]


def test_an_image_is_pulled_unless_it_is_there(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    calls = stand_in("podman", _ENGINE)
    environment = ContainerEnvironment(str(tmp_path), None, "docker.io/library/python:3.11")
    assert environment.build()[0] is True
    assert environment.build() == (False, "")
    assert _did(calls) == ["pull"]
    assert environment.result() == {
        "kind": "docker",
        "engine": "podman",
        "image": "docker.io/library/python:3.11",
        "options": [],
    }


def test_a_dockerfile_is_built_once_without_a_context(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    calls = stand_in("docker", _ENGINE)
    content = "# syntax=x\nFROM scratch\nLABEL a=$HOME\n"
    environment = ContainerEnvironment(str(tmp_path), content, None)
    assert environment.build()[0] is True
    assert environment.build() == (False, "")
    assert _did(calls) == ["build"]
    image = environment.result()["image"]
    assert image.startswith("monkey-")
    assert Path(f"{calls}.images").read_text() == f"{image}\n{content}"
    assert ContainerEnvironment(str(tmp_path), content + "ENV x=1\n", None).result()["image"] != image


def test_docker_without_a_daemon_gives_way_to_podman(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    stand_in("docker", "exit 1")
    stand_in("podman", _ENGINE)
    assert ContainerEnvironment(str(tmp_path), None, "x").result()["engine"] == "podman"


def test_what_the_engine_says_is_kept(clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path) -> None:
    stand_in("podman", 'case "$1" in version) exit 0;; image) exit 1;; *) echo manifest unknown >&2; exit 125;; esac')
    with pytest.raises(
        EnvironmentBuildError, match=r"podman could not pull the image x:1 \(exit code 125\)"
    ) as failure:
        ContainerEnvironment(str(tmp_path), None, "x:1").build()
    assert failure.value.log_tail.endswith("manifest unknown")


@pytest.mark.parametrize("image", ["--privileged", "a b", "", "x\ny", "$(id)"])
def test_a_name_that_is_no_name_never_reaches_the_engine(
    image: str, clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    calls = stand_in("podman", _ENGINE)
    with pytest.raises(EnvironmentBuildError, match="is no name of an image"):
        ContainerEnvironment(str(tmp_path), None, image)
    assert not calls.exists()


def test_no_engine_and_no_daemon_are_told_apart(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("docker", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(EnvironmentBuildError, match="neither docker nor podman"):
        ContainerEnvironment(str(tmp_path), None, "x")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with pytest.raises(EnvironmentBuildError, match="docker on this host does not answer"):
        ContainerEnvironment(str(tmp_path), None, "x")
