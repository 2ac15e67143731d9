"""What a snapshot leaves out: git itself says what is right."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFSError
from ansible_collections.monkey.runner.plugins.module_utils.snapshot import Snapshot, snapshot

PATTERN_TEXT = (
    "* a /a a/ !a !a/ *.txt !*.txt a/* !a/b data/ /data **/b a/** !*/ !/a b/**/x.py !x.py data/*.txt [ab] ? !ab "
    "\\!a #c ** */b !**/a.txt !data/ !data/x.py /* !/*/ !b ! / [z-a] a\\ b"
)
PATTERNS = PATTERN_TEXT.split()
NAMES = ("a", "b", "ab", "a.txt", "b.txt", "data", "x.py")


def names(taken: Snapshot) -> set[str]:
    return {entry["path"] for entry in taken.tree["entries"] if entry["type"] != "dir"}


def make(top: Path, *paths: str) -> None:
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)


@pytest.mark.parametrize("seed", range(12))
def test_gitignore_files_hold_as_in_git(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)

    def fill(folder: Path, depth: int) -> None:
        for name in rng.sample(NAMES, 4):
            if depth < 2 and rng.random() < 0.5:
                (folder / name).mkdir()
                fill(folder / name, depth + 1)
            else:
                (folder / name).touch()
        if rng.random() < (0.9 if depth == 0 else 0.4):
            (folder / ".gitignore").write_text("\n".join(rng.sample(PATTERNS, rng.randint(1, 5))) + "\r\n")

    fill(tmp_path, 0)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=", "ls-files", "-o", "--exclude-standard", "-z"]
    want = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    assert names(snapshot(tmp_path)) == set(want) - {""}


def test_git_and_monkey_output_are_never_taken(tmp_path: Path) -> None:
    make(tmp_path, "a.py", ".git/config", "sub/.git", "monkey-output/x", "sub/monkey-output/x", "sub/b.py")
    assert names(snapshot(tmp_path, ignore=["!.git", "!monkey-output"])) == {"a.py", "sub/b.py"}
    assert names(snapshot(tmp_path, use_gitignore=False)) == {"a.py", "sub/b.py"}


def test_use_gitignore_false_takes_all(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "b.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert names(snapshot(tmp_path)) == {".gitignore", "a.py"}
    assert names(snapshot(tmp_path, use_gitignore=False)) == {".gitignore", "a.py", "b.log"}


@pytest.mark.parametrize("pattern", ["data", "data**", "data/", "/data", "/data/**", "data/**"])
def test_forms_that_leave_the_folder_out(pattern: str, tmp_path: Path) -> None:
    make(tmp_path, "data/x.csv", "data/deep/y.csv", "data_loader.py", "database/z.py")
    assert names(snapshot(tmp_path, ignore=[pattern])) == {"data_loader.py", "database/z.py"}


def test_code_ignore_stands_above_gitignore(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "b.log", "c.py")
    (tmp_path / ".gitignore").write_text("*.log\n!b.log\n")
    assert names(snapshot(tmp_path, ignore=["!a.log", "b.log", ".gitignore"])) == {"a.log", "c.py"}


@pytest.mark.parametrize("pattern", ["", "!", "#note", "a\nb", "   "])
def test_what_is_no_pattern_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(MonkeyFSError, match=r"code\.ignore: .* is not a pattern"):
        snapshot(tmp_path, ignore=[pattern])


def test_rules_of_the_repository_above_hold(tmp_path: Path) -> None:
    make(tmp_path, "exp/one/a.py", "exp/one/m.ckpt", "exp/one/tmp.txt", "exp/one/keep.ckpt")
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("tmp.txt\n")
    (tmp_path / ".gitignore").write_text("*.ckpt\n/exp/one/nothing\n")
    (tmp_path / "exp" / ".gitignore").write_text("!keep.ckpt\n")
    assert names(snapshot(tmp_path / "exp" / "one")) == {"a.py", "keep.ckpt"}
    # A home folder that is a repository, with everything ignored, does not mean the projects in it.
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / "exp" / ".gitignore").unlink()
    assert len(names(snapshot(tmp_path / "exp" / "one"))) == 4


def test_tool_folders_that_hide_themselves_are_left_out_whole(tmp_path: Path) -> None:
    make(tmp_path, "a.py", ".venv/bin/python")
    (tmp_path / ".venv" / ".gitignore").write_text("*\n")
    taken = snapshot(tmp_path)
    assert [entry["path"] for entry in taken.tree["entries"]] == ["a.py"]


def test_an_ignored_folder_is_not_entered(tmp_path: Path) -> None:
    make(tmp_path, "a.py")
    (tmp_path / "scratch").mkdir()
    os.mkfifo(tmp_path / "scratch" / "pipe")
    assert names(snapshot(tmp_path, ignore=["scratch"])) == {"a.py"}
    with pytest.raises(MonkeyFSError, match="scratch/pipe: is a named pipe"):
        snapshot(tmp_path)


def test_the_snapshot_counts_and_names_its_files(tmp_path: Path) -> None:
    make(tmp_path, "a", "b/c")
    taken = snapshot(tmp_path)
    assert (taken.files, taken.size_bytes) == (2, len("a") + len("b/c"))
    assert sorted(taken.paths.values()) == [str(tmp_path / "a"), str(tmp_path / "b" / "c")]
    assert taken.id == snapshot(tmp_path).id


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MonkeyFSError, match="expected a folder"):
        snapshot(tmp_path / "none")


def test_the_cache_file_saves_reading_and_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    top = tmp_path / "src"
    make(top, "a", "b")
    cache_file = tmp_path / "cache" / "c.json"
    cache_file.parent.mkdir()
    plain = snapshot(top)
    short = {"version": 1, "folder": str(top), "files": {"a": [1]}}
    for broken in ("", "[]", '{"version": 1, "folder": 1}', json.dumps(short)):
        cache_file.write_text(broken)
        assert snapshot(top, cache_file=cache_file).tree == plain.tree
    time.sleep(2.1)  # files changed within the last two seconds are not remembered
    snapshot(top, cache_file=cache_file)
    text = cache_file.read_text()
    known = next(entry["sha256"] for entry in plain.tree["entries"] if entry["path"] == "a")
    cache_file.write_text(text.replace(known, "0" * 64))
    remembered = snapshot(top, cache_file=cache_file).tree["entries"][0]
    assert remembered["sha256"] == "0" * 64, "the file was read although nothing had changed"
    make(top, "a")
    assert snapshot(top, cache_file=cache_file).tree == plain.tree
    assert os.listdir(cache_file.parent) == ["c.json"]


def test_ten_thousand_files_take_a_few_seconds(tmp_path: Path) -> None:
    for folder in range(100):
        (tmp_path / f"d{folder}").mkdir()
        for number in range(100):
            (tmp_path / f"d{folder}" / f"f{number}.py").touch()
    (tmp_path / ".gitignore").write_text("*.ckpt\n__pycache__/\n.venv\nbuild/\n/dist\n*.egg-info/\n")
    started = time.process_time()
    taken = snapshot(tmp_path, ignore=["data**", "*.log"])
    assert taken.files == 10_001
    assert time.process_time() - started < 5
