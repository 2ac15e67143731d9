"""Trees: hostile ones are refused, and nothing is ever read or written through a link."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import folders, trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS, MonkeyFSError

SHA = "a" * 64


def file(path: object, **more: Any) -> dict[str, Any]:
    return {"path": path, "type": "file", "sha256": SHA, "size": 1, "mode": 0o644, **more}


def link(path: str, target: object) -> dict[str, Any]:
    return {"path": path, "type": "link", "target": target}


@pytest.mark.parametrize(
    "entries",
    [
        [file("../a")],
        [file("/etc/passwd")],
        [file("a/../b")],
        [file("a//b")],
        [file("./a")],
        [file("a/")],
        [file("")],
        [file("a\0b")],
        [file("\ud800")],
        [file(7)],
        [file("a", mode=0o4755)],
        [file("a", mode=True)],
        [file("a", size=-1)],
        [file("a", size=1.0)],
        [file("a", size=True)],
        [file("a", sha256="../../x")],
        [file("a", extra=1)],
        [file("a"), file("a")],
        [file("b"), file("a")],
        [file("a"), file("b", size=2)],
        [file("a"), file("a/b")],
        [link("a", "b"), file("a/b")],
        [{"path": "a", "type": "dir"}, file("a/b")],
        [{"path": "a", "type": "device"}],
        [{"path": "a", "type": ["file"]}],
        ["a"],
        [link("a", "/etc")],
        [link("a", "..")],
        [link("a/b", "../..")],
        [link("a", "")],
        [link("a", 7)],
        [link("a", "b/../../x")],
        # Each is harmless by its name; together they leave: l -> top, then three times up.
        [link("a/b/c/l", "../../.."), link("z", "a/b/c/l/../x")],
        [link("a/b/c/l", "../../../x"), link("z", "a/b/c/l/../../y")],
    ],
    ids=repr,
)
def test_hostile_trees_are_refused(entries: list[Any], tmp_path: Path) -> None:
    with pytest.raises(MonkeyFSError):
        trees.check({"entries": entries})
    with pytest.raises(MonkeyFSError):
        trees.materialise(MonkeyFS(tmp_path / "fs"), {"entries": entries}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tree", [None, [], {}, {"entries": None}, {"entries": [], "x": 1}, "entries"], ids=repr)
def test_what_is_no_tree_is_refused(tree: object) -> None:
    with pytest.raises(MonkeyFSError):
        trees.check(tree)


def test_harmless_links_pass() -> None:
    tree = {"entries": [link("a", "b/c"), link("b/c", "../d/./e"), link("loop", "loop"), link("up/x", "..")]}
    assert trees.check(tree) is tree


def test_parse_wants_the_canonical_form_and_the_right_id() -> None:
    tree = {"entries": [file("a")]}
    content = trees.canonical(tree)
    assert trees.parse(content, trees.tree_id(tree)) == tree
    with pytest.raises(MonkeyFSError, match="content of its id"):
        trees.parse(content, SHA)
    import hashlib

    for other in (content + b" ", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(MonkeyFSError, match=r"not JSON|canonical"):
            trees.parse(other, hashlib.sha256(other).hexdigest())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "src"
    (top / "a").mkdir(parents=True)
    (top / "a-b").mkdir()
    (top / "empty" / "er").mkdir(parents=True)
    (top / "a" / "x.py").write_text("print(1)\n")
    (top / "a-b" / "y").write_text("y")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o700)
    (top / "ümläut 🐒\n.txt").write_text("u")
    (top / "l").symlink_to("a/x.py")
    return top


def roundtrip(fs: MonkeyFS, top: Path) -> trees.Tree:
    tree, paths = trees.scan(top)
    fs.take(tree, paths)
    return tree


def test_scan_and_materialise_give_the_same_folder(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    kinds = {entry["path"]: entry.get("mode", entry["type"]) for entry in tree["entries"]}
    assert kinds == {
        "a-b/y": 0o644,
        "a/x.py": 0o644,
        "empty/er": "dir",
        "l": "link",
        "run.sh": 0o755,
        "ümläut 🐒\n.txt": 0o644,
    }
    assert trees.summary(tree) == (4, 9 + 1 + 10 + 1)
    trees.materialise(fs, tree, tmp_path / "out")
    assert trees.scan(tmp_path / "out")[0] == tree
    assert os.readlink(tmp_path / "out" / "l") == "a/x.py"


def test_written_files_are_copies_and_cannot_change_the_store(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    trees.materialise(fs, tree, tmp_path / "out")
    (tmp_path / "out" / "a" / "x.py").write_text("changed")
    trees.materialise(fs, tree, tmp_path / "again")
    assert (tmp_path / "again" / "a" / "x.py").read_text() == "print(1)\n"


def test_readonly_sets_0444_and_0555_and_remove_takes_it_away(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    for replace in (False, True, True):
        trees.materialise(fs, tree, tmp_path / "out", readonly=True, replace=replace)
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (tmp_path / "out").rglob("*") if not path.is_symlink()}
    assert modes == {0o444, 0o555}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o555
    assert stat.S_IMODE((tmp_path / "out" / "run.sh").stat().st_mode) == 0o555
    assert trees.remove(tmp_path / "out") is True
    assert trees.remove(tmp_path / "out") is False
    assert not (tmp_path / "out").exists()


def test_laid_over_replaces_names_of_the_tree_and_keeps_the_rest(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    out = tmp_path / "out"
    (out / "run.sh" / "deep").mkdir(parents=True)
    (out / "a").write_text("a file where a folder belongs")
    (out / "mine").write_text("mine")
    trees.materialise(fs, tree, out)
    assert (out / "mine").read_text() == "mine"
    assert (out / "run.sh").read_text() == "#!/bin/sh\n"
    assert (out / "a" / "x.py").read_text() == "print(1)\n"
    trees.materialise(fs, tree, out, replace=True)
    assert trees.scan(out)[0] == tree
    assert sorted(os.listdir(tmp_path)) == ["fs", "out", "src"]


def test_no_link_is_followed_while_writing(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_text("theirs")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").symlink_to(outside)
    (out / "empty").symlink_to(outside)
    (out / "run.sh").symlink_to(outside / "x.py")
    trees.materialise(fs, tree, out)
    assert [path.name for path in outside.iterdir()] == ["x.py"]
    assert (outside / "x.py").read_text() == "theirs"
    assert trees.scan(out)[0] == tree

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "output").symlink_to(outside)
    trees.materialise(fs, tree, tmp_path / "work" / "output" / "deep", beneath=tmp_path / "work")
    assert [path.name for path in outside.iterdir()] == ["x.py"]
    assert trees.scan(tmp_path / "work" / "output" / "deep", beneath=tmp_path / "work")[0] == tree
    with pytest.raises(MonkeyFSError, match="does not lie beneath"):
        trees.materialise(fs, tree, tmp_path / "elsewhere", beneath=tmp_path / "work")


def test_a_missing_or_damaged_blob_is_an_error(folder: Path, tmp_path: Path) -> None:
    fs = MonkeyFS(tmp_path / "fs")
    tree = roundtrip(fs, folder)
    entry = next(entry for entry in tree["entries"] if entry["path"] == "a/x.py")
    blob = Path(fs.blob_path(entry["sha256"]))
    blob.chmod(0o600)
    blob.write_text("short")
    with pytest.raises(MonkeyFSError, match=r"a/x.py: blob .* damaged"):
        trees.materialise(fs, tree, tmp_path / "one")
    blob.unlink()
    with pytest.raises(MonkeyFSError, match=r"a/x.py: blob .* missing"):
        trees.materialise(fs, tree, tmp_path / "two", replace=True)
    assert not (tmp_path / "two").exists()


def test_remove_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "f").write_text("x")
    (tmp_path / "gone" / "d").mkdir(parents=True)
    (tmp_path / "gone" / "d" / "l").symlink_to(tmp_path / "keep")
    folders.remove(tmp_path / "gone")
    assert (tmp_path / "keep" / "f").exists() and not (tmp_path / "gone").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "a/../../x"])
def test_scan_refuses_links_that_leave_the_folder_by_name(folder: Path, target: str) -> None:
    (folder / "bad").symlink_to(target)
    with pytest.raises(MonkeyFSError, match=r"src/bad: this link leaves the folder \(-> "):
        trees.scan(folder)
    told: list[str] = []
    tree, _paths = trees.scan(folder, problem=lambda path, why: told.append(path))
    assert told == ["bad"]
    assert "bad" not in {entry["path"] for entry in tree["entries"]}


def test_an_absolute_link_into_the_folder_becomes_a_relative_one(folder: Path) -> None:
    (folder / "empty" / "abs").symlink_to(folder / "a" / "x.py")
    tree, _paths = trees.scan(folder)
    assert link("empty/abs", "../a/x.py") in tree["entries"]


def test_scan_refuses_special_files_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(MonkeyFSError, match="src/pipe: is a named pipe"):
        trees.scan(folder)
    (folder / "pipe").unlink()
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        with pytest.raises(MonkeyFSError, match="src/sock: is a socket"):
            trees.scan(folder)


def test_scan_refuses_names_that_are_not_utf8(folder: Path) -> None:
    (Path(os.fsdecode(os.fsencode(folder / "a") + b"/caf\xe9"))).write_text("x")
    with pytest.raises(MonkeyFSError, match=r"src/a/caf\\xe9: the file name is not valid UTF-8"):
        trees.scan(folder)


def test_scan_does_not_enter_what_is_skipped(folder: Path) -> None:
    os.mkfifo(folder / "a" / "pipe")
    asked: list[tuple[str, bool]] = []

    def skip(path: str, is_folder: bool) -> bool:
        asked.append((path, is_folder))
        return path == "a"

    tree, _paths = trees.scan(folder, skip=skip)
    assert ("a", True) in asked and ("l", False) in asked
    assert not any(path.startswith("a/") for path, _is_folder in asked)
    assert not any(entry["path"].startswith("a/") for entry in tree["entries"])


def test_scan_with_beneath_follows_no_link_to_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(folder)
    assert trees.scan(tmp_path / "way")[0] == trees.scan(folder)[0]
    with pytest.raises(OSError):
        trees.scan(tmp_path / "way", beneath=tmp_path)


def test_folders_nested_too_deep_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "/".join(["d"] * 210)).mkdir(parents=True)
    with pytest.raises(MonkeyFSError, match="nested more than 200 deep"):
        trees.scan(tmp_path)


def test_unchanged_files_are_not_read_again_and_changed_ones_are(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    cache: dict[str, list[Any]] = {}
    first, _paths = trees.scan(folder, cache=cache)
    assert cache == {}, "a file changed a moment ago may change again within the same tick of the clock"
    stamps = {}
    for entry in first["entries"]:
        if entry["type"] == "file":
            status = (folder / entry["path"]).stat()
            # Content that the file does not have shows that it was not read.
            stamps[entry["path"]] = [status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns, SHA]
    cache.update(stamps)
    cache["gone"] = [1, 1, 1, 1, SHA]
    cache["a/x.py"] = [1, *stamps["a/x.py"][1:]]
    cache["run.sh"] = [*stamps["run.sh"][:3], 1, SHA]
    del cache["a-b/y"]
    second, _paths = trees.scan(folder, cache=cache)
    found = {entry["path"]: entry["sha256"] for entry in second["entries"] if entry["type"] == "file"}
    assert found["ümläut 🐒\n.txt"] == SHA
    assert SHA not in (found["a/x.py"], found["run.sh"])
    assert list(cache) == ["ümläut 🐒\n.txt"]


def test_a_file_that_changes_while_it_is_read_is_noticed_or_left_out(folder: Path) -> None:
    path = folder / "busy"
    path.write_bytes(bytes(16 << 20))
    stop = threading.Event()

    def change() -> None:
        with open(path, "r+b", buffering=0) as busy:
            while not stop.is_set():
                busy.seek(0)
                busy.write(os.urandom(8))
                time.sleep(0.0002)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        with pytest.raises(MonkeyFSError, match="src/busy: keeps changing"):
            trees.scan(folder)
        told: list[tuple[str, str]] = []
        tree, _paths = trees.scan(folder, problem=lambda where, why: told.append((where, why)))
    finally:
        stop.set()
        writer.join()
    assert told == [("busy", "keeps changing while it is read")]
    assert "busy" not in {entry["path"] for entry in tree["entries"]}
