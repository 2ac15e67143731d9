"""A package that can be installed without a network, and a user who has configured nothing."""

from __future__ import annotations

import base64
import hashlib
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def clean_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, no configuration of pip, uv or conda, only the system's programs in PATH."""
    home = tmp_path / "user"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "CONDA_EXE", "MAMBA_EXE", "UV_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return home


@pytest.fixture
def offline_packages(clean_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels with one package, ``tinypkg`` 1.0, and a pip.conf that names it as the only source."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    files = {
        "tinypkg.py": b"VALUE = 42\n",
        "tinypkg-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinypkg\nVersion: 1.0\n",
        "tinypkg-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    record.append("tinypkg-1.0.dist-info/RECORD,,")
    with zipfile.ZipFile(wheels / "tinypkg-1.0-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr("tinypkg-1.0.dist-info/RECORD", "\n".join(record) + "\n")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    return wheels


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a program first in PATH: ``stand_in("conda", "shell script")``. Its calls go to the file ``$LOG``."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name: str, script: str) -> Path:
        program = folder / name
        program.write_text(f'#!/bin/sh\nLOG={tmp_path}/{name}.calls\necho "$@" >> $LOG\n{script}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return tmp_path / f"{name}.calls"

    return make


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
