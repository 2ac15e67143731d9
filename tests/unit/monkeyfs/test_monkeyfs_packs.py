"""Packs: a hostile one can neither name a blob wrongly nor write more than it announced."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import harvest, packs
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS, MonkeyFSError


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def line(content: bytes, size: int | None = None, name: str | None = None) -> bytes:
    return f"{name or sha(content)} {len(content) if size is None else size}\n".encode() + content


@pytest.fixture
def fs(tmp_path: Path) -> MonkeyFS:
    return MonkeyFS(tmp_path / "fs")


def test_write_and_read(fs: MonkeyFS, tmp_path: Path) -> None:
    contents = [b"", b"a", b"line\nend\n", os.urandom(3 << 20)]
    shas = [fs.put_bytes(content) for content in contents]
    out = io.BytesIO()
    assert packs.write(fs, [*shas, shas[0]], out) == (4, sum(map(len, contents)))
    assert b"".join(packs.chunks(fs, shas)) == out.getvalue()
    other = MonkeyFS(tmp_path / "other")
    assert packs.read(io.BytesIO(out.getvalue()), other) == (4, sum(map(len, contents)))
    assert [Path(other.blob_path(name)).read_bytes() for name in shas] == contents


def test_format_is_the_documented_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hi")
    out = io.BytesIO()
    packs.write({sha(b"hi"): str(tmp_path / "f")}, [sha(b"hi")], out)
    assert out.getvalue() == b"MKPK1\n" + sha(b"hi").encode() + b" 2\nhi" + b"end\n"


def test_an_empty_pack(fs: MonkeyFS) -> None:
    assert packs.read(io.BytesIO(b"MKPK1\nend\n"), fs) == (0, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"MKPK2\nend\n",
        b"MKPK1\n",
        b"MKPK1\n" + line(b"hello"),
        b"MKPK1\n" + line(b"hello")[:-2],
        b"MKPK1\n" + line(b"hello") + b"end\nmore",
        b"MKPK1\n" + line(b"hello", name=sha(b"other")) + b"end\n",
        b"MKPK1\n" + line(b"hello", size=4) + b"end\n",
        b"MKPK1\n" + line(b"hello", size=6) + b"end\n",
        b"MKPK1\n" + line(b"hello", size=10**18) + b"end\n",
        b"MKPK1\n" + line(b"hello", name="../" + "a" * 61) + b"end\n",
        b"MKPK1\n" + sha(b"").encode() + b" -1\nend\n",
        b"MKPK1\n" + sha(b"").encode() + b" 0x0\nend\n",
        b"MKPK1\n" + sha(b"").encode() + b" 00\nend\n",
        b"MKPK1\n" + sha(b"").encode() + b" 1" + b"0" * 100 + b"\nend\n",
        b"MKPK1\n" + b"x" * 1000,
        b"MKPK1\nend\r\n",
    ],
    ids=lambda content: repr(content[:90]),
)
def test_broken_and_hostile_packs_are_refused(content: bytes, fs: MonkeyFS) -> None:
    with pytest.raises(MonkeyFSError):
        packs.read(io.BytesIO(content), fs)
    for name in (sha(b"other"), sha(b"hell")):
        assert not fs.has(name)
    if os.path.isdir(fs.root + "/tmp"):
        assert os.listdir(fs.root + "/tmp") == []


def test_what_was_not_announced_is_refused_before_it_is_written(fs: MonkeyFS) -> None:
    content = b"MKPK1\n" + line(b"asked") + line(b"extra") + b"end\n"
    with pytest.raises(MonkeyFSError, match="not announced"):
        packs.read(io.BytesIO(content), fs, announced={sha(b"asked"): 5})
    assert fs.has(sha(b"asked")) and not fs.has(sha(b"extra"))
    with pytest.raises(MonkeyFSError, match="not announced"):
        packs.read(io.BytesIO(content), fs, announced={sha(b"asked"): 6, sha(b"extra"): 5})


def test_two_packs_in_one_stream(fs: MonkeyFS) -> None:
    stream = io.BytesIO(b"MKPK1\n" + line(b"{}") + b"end\nMKPK1\n" + line(b"x") + b"end\n")
    assert packs.read_small(stream, 10, last=False) == {sha(b"{}"): b"{}"}
    assert packs.read(stream, fs) == (1, 1)


def test_small_packs_have_a_limit_and_are_verified() -> None:
    with pytest.raises(MonkeyFSError, match="more than 4 bytes"):
        packs.read_small(io.BytesIO(b"MKPK1\n" + line(b"hello") + b"end\n"), 4)
    with pytest.raises(MonkeyFSError, match="announced sha256"):
        packs.read_small(io.BytesIO(b"MKPK1\n" + line(b"hello", name=sha(b"x")) + b"end\n"), 99)


def test_writing_notices_a_file_that_is_another_one_by_now(fs: MonkeyFS, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"new content")
    with pytest.raises(MonkeyFSError, match="does not have the content"):
        packs.write({sha(b"old"): str(tmp_path / "f")}, [sha(b"old")], io.BytesIO())
    with pytest.raises(MonkeyFSError, match="is missing"):
        packs.write(fs, [sha(b"old")], io.BytesIO())


def test_groups_stay_below_the_limit_and_a_larger_blob_stands_alone() -> None:
    assert packs.group({}, 10) == []
    for sizes in ({"a": 4, "b": 6, "c": 1, "d": 50, "e": 2, "f": 2}, {"x": 50, "y": 1}):
        groups = packs.group(sizes, 10)
        assert [name for group in groups for name in group] == list(sizes)
        assert all(len(group) == 1 or sum(sizes[name] for name in group) <= 10 for group in groups)


def test_harvest_cuts_what_changed_out_of_the_pack_and_follows_no_link(fs: MonkeyFS, tmp_path: Path) -> None:
    work = tmp_path / "home" / "attempts" / "26-11-21-001.1" / "work"
    work.mkdir(parents=True)
    (work / "grown").write_bytes(b"line 1\nline 2\n")
    (work / "changed").write_bytes(b"new")
    (work / "link").symlink_to(work / "grown")
    (work / "folder").symlink_to(work)
    where = "26-11-21-001.1/work/"
    items = [
        [sha(b"old"), 3, where + "changed"],
        [sha(b"line 1\n"), 7, where + "grown"],
        [sha(b"gone"), 4, where + "gone"],
        [sha(b"line 1\nline 2\n"), 14, where + "link"],
        [sha(b"line 1\nline 2\n"), 14, where + "folder/grown"],
    ]
    with open(tmp_path / "pack", "w+b") as out:
        assert harvest.pack(str(tmp_path / "home"), items, out) == [items[0][0], items[2][0], items[3][0], items[4][0]]
        out.seek(0)
        assert packs.read(out, fs, announced={sha(b"line 1\n"): 7}) == (1, 7)
    with pytest.raises(MonkeyFSError):
        harvest.open_file(str(tmp_path / "home"), "../secret")
    with pytest.raises(MonkeyFSError):
        harvest.Attempt(str(tmp_path), "../../x", 1)
