"""Virtual environments, really built from a folder of wheels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.action.environment import find_pip_wheel, zip_installed_pip
from ansible_collections.monkey.runner.plugins.module_utils.environments import interpreter
from ansible_collections.monkey.runner.plugins.module_utils.environments.errors import (
    EnvironmentBuildError,
    PipMissingError,
)
from ansible_collections.monkey.runner.plugins.module_utils.environments.pip import PipEnvironment


def _value(environment: PipEnvironment) -> str:
    argv = [f"{environment.path}/bin/python", "-c", "import tinypkg; print(tinypkg.VALUE)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def without_ensurepip(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python, as Debian ships it without python3-venv."""
    monkeypatch.setattr(
        interpreter, "_QUESTION", interpreter._QUESTION.replace("import ensurepip", "raise ImportError")
    )


def test_it_is_built_once_and_again_only_for_other_content(offline_packages: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    first = PipEnvironment(home, "tinypkg==1.0\n")
    assert not first.is_there()
    built, tail = first.build()
    assert built
    assert "Successfully installed tinypkg-1.0" in tail
    assert _value(first) == "42"
    again = PipEnvironment(home, "# the same\ntinypkg==1.0")
    assert again.is_there()
    assert again.build() == (False, "")
    assert PipEnvironment(home, "tinypkg").path != first.path
    assert Path(first.path, "requirements.txt").read_text() == "tinypkg==1.0\n"


def test_the_tools_own_words_say_why_it_failed(offline_packages: Path, without_ensurepip: None, tmp_path: Path) -> None:
    wheel = zip_installed_pip(tmp_path)
    environment = PipEnvironment(str(tmp_path / "home"), "tinypkg==9.9\n", pip_wheel=str(wheel))
    with pytest.raises(EnvironmentBuildError) as failure:
        environment.build()
    assert (
        str(failure.value) == "pip could not install the requirements: No matching distribution found for tinypkg==9.9"
    )
    assert "from versions: 1.0" in failure.value.log_tail
    assert not environment.is_there()
    assert not Path(environment.path).exists()


@pytest.mark.parametrize("carried", ["by ensurepip", "beside ansible"])
def test_without_ensurepip_a_wheel_that_was_sent_will_do(
    carried: str, offline_packages: Path, without_ensurepip: None, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")
    with pytest.raises(PipMissingError, match="no ensurepip"):
        PipEnvironment(home, "tinypkg").build()
    wheel = find_pip_wheel() if carried == "by ensurepip" else zip_installed_pip(tmp_path)
    if wheel is None:
        pytest.skip("this Python has no pip wheel of its own (Debian without python3-venv)")
    environment = PipEnvironment(home, "tinypkg", pip_wheel=str(wheel))
    assert environment.build()[0]
    assert _value(environment) == "42"
    subprocess.run([f"{environment.path}/bin/pip", "--version"], check=True, capture_output=True)


def test_uv_gets_the_sources_of_pip(
    offline_packages: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    script = f"""
for last; do :; done
if [ "$1" = venv ]; then
  case "$*" in *--seed*) echo no pip in the index; exit 2;; esac
  exec {sys.executable} -m venv --without-pip "$last"
fi
cat "$4" >> $LOG
cat "$last" >> $LOG
"""
    calls = stand_in("uv", script)
    environment = PipEnvironment(str(tmp_path / "home"), "tinypkg\n--pre\n")
    assert environment.build()[0]
    said = calls.read_text()
    assert f'find-links = ["{offline_packages}"]\nno-index = true\ntinypkg\n--pre\n' in said
    assert said.count("venv ") == 2  # with pip, which this index lacks, then without
    assert str(offline_packages) not in said.split("[pip]")[0]  # addresses may hold passwords: never an argument


def test_when_uv_fails_pip_does_it(
    offline_packages: Path, stand_in: Callable[[str, str], Path], tmp_path: Path
) -> None:
    stand_in("uv", 'for last; do :; done; mkdir -p "$last"; touch "$last/half"; exit 1')
    environment = PipEnvironment(str(tmp_path / "home"), "tinypkg")
    built, tail = environment.build()
    assert built
    assert "uv failed: pip is tried" in tail or "Successfully installed" in tail
    assert not Path(environment.path, "half").exists()
    assert _value(environment) == "42"


def test_uv_is_found_where_its_installer_puts_it(clean_user: Path, tmp_path: Path) -> None:
    program = clean_user / ".local" / "bin" / "uv"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\nfor last; do :; done\n[ "$1" = venv ] || exit 0\n'
        f'exec {sys.executable} -m venv --without-pip "$last"\n'
    )
    program.chmod(0o755)
    assert PipEnvironment(str(tmp_path / "home"), "").build()[0]


def test_an_unknown_interpreter_is_named(clean_user: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match=r"no Python interpreter 'python9\.9' on this host"):
        PipEnvironment(str(tmp_path), "", python="python9.9")
    with pytest.raises(EnvironmentBuildError, match="/bin/false does not work as a Python interpreter"):
        PipEnvironment(str(tmp_path), "", python="/bin/false")
