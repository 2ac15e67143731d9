"""Uninstalling leaves nothing, and nothing of others is touched."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.monkey.runner.plugins.module_utils.client import install


def test_the_shared_folder_goes_with_the_last_client(tmp_path: Path) -> None:
    above = tmp_path / install.SHARED_FOLDER
    for name in ("one", "two"):
        (above / name / "attempts").mkdir(parents=True)
    assert install.uninstall(str(above / "one"), 5.0)
    assert [path.name for path in above.iterdir()] == ["two"]
    assert install.uninstall(str(above / "two"), 5.0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_name_stays(tmp_path: Path) -> None:
    (tmp_path / "own" / "home" / "attempts").mkdir(parents=True)
    assert install.uninstall(str(tmp_path / "own" / "home"), 5.0)
    assert (tmp_path / "own").is_dir()
