"""What the tests of the store on disk share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monkey.store import Store


@pytest.fixture
def put_numbers() -> Callable[[Store, int, int], None]:
    """One change for each number from the first to the last."""

    def put(store: Store, first: int, last: int) -> None:
        for n in range(first, last + 1):
            store.put("meta", "n", {"n": n, "pad": "é" * n})

    return put


@pytest.fixture
def number() -> Callable[[Store], int]:
    """The number that was put last, or 0."""

    def read(store: Store) -> int:
        doc = store.get("meta", "n")
        return int(doc["n"]) if doc else 0

    return read


@pytest.fixture
def crash() -> Callable[[Path, Path], Path]:
    """The files as a kill would leave them now, in another folder."""

    def copy(folder: Path, to: Path) -> Path:
        shutil.copytree(folder, to)
        return to

    return copy


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("cannot mount a small tmpfs here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
