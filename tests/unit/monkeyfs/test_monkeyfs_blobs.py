"""The store: blobs and trees get their names whole, verified, or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS, MonkeyFSError


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def fs(tmp_path: Path) -> MonkeyFS:
    return MonkeyFS(tmp_path / "fs")


def test_looking_at_a_store_changes_nothing(fs: MonkeyFS) -> None:
    assert not fs.has(sha(b"x"))
    assert fs.missing([sha(b"x"), sha(b"y"), sha(b"x")]) == [sha(b"x"), sha(b"y")]
    assert fs.sweep() == 0
    assert not os.path.exists(fs.root)


def test_a_blob_lies_at_its_name_read_only(fs: MonkeyFS, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello")
    assert fs.put_file(tmp_path / "f") == (sha(b"hello"), 5)
    path = Path(fs.root, "blobs", sha(b"hello")[:2], sha(b"hello"))
    assert path.read_bytes() == b"hello"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert os.listdir(fs.root + "/tmp") == []


def test_a_blob_that_is_there_is_not_written_again_but_a_damaged_one_is(fs: MonkeyFS, tmp_path: Path) -> None:
    name = fs.put_bytes(b"hello")
    inode = os.stat(fs.blob_path(name)).st_ino
    (tmp_path / "f").write_bytes(b"hello")
    fs.put_file(tmp_path / "f")
    assert os.stat(fs.blob_path(name)).st_ino == inode
    os.chmod(fs.blob_path(name), 0o600)
    Path(fs.blob_path(name)).write_bytes(b"hel")
    assert fs.missing({name: 5}) == [name] and fs.missing([name]) == []
    fs.put_file(tmp_path / "f", name)
    assert Path(fs.blob_path(name)).read_bytes() == b"hello"


def test_put_file_refuses_other_content_than_expected(fs: MonkeyFS, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"other")
    with pytest.raises(MonkeyFSError, match="no longer the file"):
        fs.put_file(tmp_path / "f", sha(b"hello"))
    assert not fs.has(sha(b"hello"))


@pytest.mark.parametrize("bad", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n", None, 7])
def test_names_that_are_no_sha256_are_refused(fs: MonkeyFS, bad: object) -> None:
    with pytest.raises(MonkeyFSError, match="not a sha256"):
        fs.has(bad)  # type: ignore[arg-type]


def test_put_file_does_not_block_on_a_pipe(fs: MonkeyFS, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MonkeyFSError, match="not a regular file"):
        fs.put_file(tmp_path / "pipe")


def test_a_file_that_keeps_changing_is_an_error(fs: MonkeyFS, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(1 << 20) * 16)
    stop = threading.Event()

    def change() -> None:
        with open(path, "r+b", buffering=0) as file:
            while not stop.is_set():
                file.seek(0)
                file.write(os.urandom(8))
                time.sleep(0.0002)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        with pytest.raises(MonkeyFSError, match="keeps changing"):
            fs.put_file(path)
    finally:
        stop.set()
        writer.join()


def test_a_batch_of_many_blobs_keeps_what_came_before_an_error(fs: MonkeyFS) -> None:
    with pytest.raises(MonkeyFSError), fs.batch() as batch:
        for number in range(100):
            batch.add([b"%d" % number])
        batch.add([b"x"], sha(b"y"), 1)
    assert fs.missing([sha(b"%d" % number) for number in range(100)]) == []
    assert os.listdir(fs.root + "/tmp") == []


def test_a_full_disk_leaves_no_name_behind(fs: MonkeyFS, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, content: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        fs.put_bytes(b"hello")
    monkeypatch.undo()
    assert not fs.has(sha(b"hello"))
    assert os.listdir(fs.root + "/tmp") == []


def test_two_writers_of_the_same_blobs_at_once(fs: MonkeyFS) -> None:
    contents = [b"%d" % number * 100 for number in range(200)]
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for content in contents:
                MonkeyFS(fs.root).put_bytes(content)
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    assert fs.missing({sha(content): len(content) for content in contents}) == []


def test_a_tree_is_taken_in_only_with_all_its_blobs(fs: MonkeyFS) -> None:
    tree = {"entries": [{"path": "a", "type": "file", "sha256": sha(b"hi"), "size": 2, "mode": 0o644}]}
    with pytest.raises(MonkeyFSError, match="1 blobs of the tree are missing"):
        fs.put_tree(tree)
    fs.put_bytes(b"hi")
    name = fs.put_tree(tree)
    assert name == trees.tree_id(tree) and fs.has_tree(name) and fs.get_tree(name) == tree
    assert fs.put_tree(tree) == name


def test_a_damaged_tree_is_noticed_and_repaired(fs: MonkeyFS) -> None:
    tree = {"entries": [{"path": "a", "type": "dir"}]}
    name = fs.put_tree(tree)
    os.chmod(fs.tree_path(name), 0o600)
    Path(fs.tree_path(name)).write_bytes(Path(fs.tree_path(name)).read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(MonkeyFSError, match="does not have the content of its id"):
        fs.get_tree(name)
    fs.put_tree(tree)
    assert fs.get_tree(name) == tree


def test_sweep_removes_only_what_is_old(fs: MonkeyFS) -> None:
    fd, old = fs.tmp_file()
    os.close(fd)
    fd, young = fs.tmp_file()
    os.close(fd)
    os.utime(old, (1, 1))
    assert fs.sweep() == 1
    assert os.listdir(fs.root + "/tmp") == [os.path.basename(young)]
