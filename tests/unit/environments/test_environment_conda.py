"""Conda environments; conda itself, the outside program, is a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.environments.conda import CondaEnvironment
from ansible_collections.monkey.runner.plugins.module_utils.environments.errors import EnvironmentBuildError

_CONTENT = "name: mine\ndependencies: [python, numpy]\n"
_MAKES = """
while [ $# -gt 0 ]; do case "$1" in --prefix) prefix=$2;; --file) file=$2;; esac; shift; done
mkdir -p "$prefix/bin" "$prefix/conda-meta"; touch "$prefix/conda-meta/history"; cp "$file" "$prefix/made-from"
echo done
"""


@pytest.mark.parametrize(
    ("program", "verb"), [("conda", "env create"), ("mamba", "env create"), ("micromamba", "create")]
)
def test_it_is_made_once_by_the_program_there_is(
    program: str, verb: str, clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    calls = stand_in(program, _MAKES)
    environment = CondaEnvironment(str(tmp_path / "home"), _CONTENT)
    assert not environment.is_there()
    assert environment.build()[0] is True
    assert environment.build() == (False, "")
    assert environment.result() == {"kind": "conda", "path": environment.path}
    assert Path(environment.path, "made-from").read_text() == _CONTENT
    assert calls.read_text().startswith(f"{verb} --prefix {environment.path} --file ")
    assert calls.read_text().count("\n") == 1


def test_its_last_words_are_kept_and_nothing_counts_as_made(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    stand_in("conda", 'mkdir -p "$4/bin"; echo PackagesNotFoundError: numpie; exit 1')
    environment = CondaEnvironment(str(tmp_path), _CONTENT)
    with pytest.raises(
        EnvironmentBuildError, match=r"^conda could not make the environment \(exit code 1\)$"
    ) as failure:
        environment.build()
    assert failure.value.log_tail.endswith("PackagesNotFoundError: numpie")
    assert not Path(environment.path).exists()


def test_a_conda_that_makes_nothing_is_not_believed(
    clean_user: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    stand_in("conda", "exit 0")
    with pytest.raises(EnvironmentBuildError, match="made no environment"):
        CondaEnvironment(str(tmp_path), _CONTENT).build()


def test_conda_exe_and_the_usual_folders_are_looked_at(
    clean_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentBuildError, match="no conda, mamba or micromamba on this host"):
        CondaEnvironment(str(tmp_path / "home"), _CONTENT).build()
    for number, place in enumerate((clean_user / "miniforge3" / "bin" / "conda", tmp_path / "elsewhere" / "conda")):
        place.parent.mkdir(parents=True)
        place.write_text(f"#!/bin/sh\n{_MAKES}")
        place.chmod(0o755)
        if number:
            monkeypatch.setenv("CONDA_EXE", str(place))
        environment = CondaEnvironment(str(tmp_path / f"home{number}"), _CONTENT)
        environment.build()
        assert f'"tool": "{place}"' in Path(environment.path, ".complete").read_text()
