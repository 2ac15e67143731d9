"""`.gitignore` keeps files out of the code, never out of a data set."""

from __future__ import annotations

import subprocess
from pathlib import Path

from monkey.paths import Home
from monkey.upload import Flags, prepare


def test_what_git_ignores_is_data_but_not_code(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "data").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("*.csv\n")
    (folder / "job.yml").write_text("data: [{name: digits, path: data}]\n")
    for name in ("local.csv", "data/digits.csv", "data/about.txt"):
        (folder / name).write_text(name)
    prepared = prepare(Home(tmp_path / "home"), folder, ["true"], Flags())
    trees = {tree_id: [entry["path"] for entry in tree["entries"]] for tree_id, tree in prepared.trees.items()}
    assert trees[prepared.submission["data"][0]["tree"]] == ["about.txt", "digits.csv"]
    assert trees[prepared.submission["code"]["tree"]] == [".gitignore", "job.yml"]


def test_a_home_in_the_folder_is_not_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    home = Home(tmp_path / "my home")
    home.create()
    (home.root / "core.log").write_text("ours")
    prepared = prepare(home, tmp_path, ["true"], Flags())
    assert [entry["path"] for entry in prepared.trees[prepared.submission["code"]["tree"]]["entries"]] == ["train.py"]
