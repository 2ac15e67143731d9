"""An image really built by the engine of this machine, where it has one that works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.environments.container import ContainerEnvironment
from ansible_collections.monkey.runner.plugins.module_utils.environments.errors import EnvironmentBuildError


def test_a_dockerfile_becomes_an_image_once(tmp_path: Path) -> None:
    try:
        environment = ContainerEnvironment(str(tmp_path), f"FROM scratch\nLABEL test={tmp_path.name}\n", None)
    except EnvironmentBuildError as error:
        pytest.skip(str(error))
    made = environment.result()
    try:
        assert environment.build()[0] is True
        assert environment.build() == (False, "")
        label = ["image", "inspect", "--format", '{{index .Config.Labels "test"}}', made["image"]]
        seen = subprocess.run([made["engine"], *label], capture_output=True, text=True, check=True).stdout
        assert seen.strip() == tmp_path.name
    finally:
        subprocess.run([made["engine"], "image", "rm", "--force", made["image"]], capture_output=True, check=False)


def test_a_broken_dockerfile_fails_with_the_engines_words(tmp_path: Path) -> None:
    try:
        environment = ContainerEnvironment(str(tmp_path), "FROM scratch\nNONSENSE\n", None)
    except EnvironmentBuildError as error:
        pytest.skip(str(error))
    with pytest.raises(EnvironmentBuildError, match="could not build the image") as failure:
        environment.build()
    assert "NONSENSE" in failure.value.log_tail
    assert not environment.is_there()
