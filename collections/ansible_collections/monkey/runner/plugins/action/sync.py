# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Sends to a host what its store lacks of code and data: the control machine's side."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible_collections.monkey.runner.plugins.module_utils import arguments as shared
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS, chunks_of
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.errors import MonkeyFSError, check_sha
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees import Tree, blobs_of, canonical
from ansible_collections.monkey.runner.plugins.plugin_utils.actions import HostAction
from ansible_collections.monkey.runner.plugins.plugin_utils.foretold import foretold

_PACK_BYTES = 64 * 1000 * 1000
# Each part costs a module call of about half a second.
_PART_BYTES = _PACK_BYTES
# Up to here the list of blobs goes with the question (about 150 kB); a longer one goes as a file.
_INLINE_BLOBS = 2000
_DIFF_PATHS = 100
_BLOCK_BYTES = 4096  # what an empty file takes on the usual file systems, about


class ActionModule(HostAction):
    """Action of ``monkey.runner.sync``."""

    module = "monkey.runner.sync"
    passed = ("home", "monkeyfs", "trees", "data_trees")
    # `home` is a path of the host: a `~` in it means the user there.
    arguments = {
        "home": {"type": "str"},
        "monkeyfs": shared.MONKEYFS,
        "trees": {"type": "list", "elements": "str", "default": []},
        "data_trees": {"type": "list", "elements": "str", "default": []},
        "progress_file": {"type": "path"},
    }

    def act(self) -> dict[str, Any]:
        """Ask the host what it lacks, and send that."""
        fs = MonkeyFS(self._args["monkeyfs"])
        ids = [check_sha(tree_id) for tree_id in dict.fromkeys(self._args["trees"] + self._args["data_trees"])]
        trees = {tree_id: self._tree(fs, tree_id) for tree_id in ids}
        sizes: dict[str, int] = {}
        for tree in trees.values():
            sizes.update(blobs_of(tree))

        inline = len(sizes) <= _INLINE_BLOBS
        reply = self.ask({"op": "missing", "sizes": sizes if inline else None})
        if reply["unknown_trees"] and not inline:
            lines = "".join(f"{sha} {size}\n" for sha, size in sizes.items())
            reply = self.ask({"op": "missing", "list": self._transfer_data(self._remote("list"), lines)})
        lacking = {sha: sizes[sha] for sha in reply["missing"]}
        unknown = [tree_id for tree_id in ids if tree_id in reply["unknown_trees"]]

        total = sum(lacking.values())
        result: dict[str, Any] = {
            "changed": bool(lacking or unknown),
            "sent_files": len(lacking),
            "sent_bytes": total,
            "trees": {tree_id: _share(tree, lacking) for tree_id, tree in trees.items()},
        }
        if self._task.diff and lacking:
            result["diff"] = [{"prepared": _paths(trees, lacking)}]
        if self._task.check_mode or not result["changed"]:
            return result
        needed = total + _BLOCK_BYTES * (len(lacking) + len(unknown))
        if reply["free_bytes"] < needed:
            raise AnsibleActionFail(_full(reply["store"], needed, reply["free_bytes"]))
        self._send(fs, lacking, {tree_id: trees[tree_id] for tree_id in unknown})
        return result

    def _tree(self, fs: MonkeyFS, tree_id: str) -> Tree:
        # In check mode a snapshot before this task has left the store as it was.
        tree = foretold(tree_id) if self._task.check_mode and not fs.has_tree(tree_id) else None
        return fs.get_tree(tree_id) if tree is None else tree

    def _send(self, fs: MonkeyFS, lacking: dict[str, int], unknown: dict[str, Tree]) -> None:
        """All of `lacking`, the large blobs in parts, then packs; the trees follow in the last one."""
        progress = _Progress(self._args["progress_file"], self._vars.get("inventory_hostname"), sum(lacking.values()))
        single = {sha: size for sha, size in lacking.items() if size > _PACK_BYTES}
        left = sum(lacking.values())
        for sha, size in single.items():
            if not fs.has(sha, size):
                raise MonkeyFSError(f"{fs.root}: blob {sha} is missing or damaged")
            self._send_parts(fs, sha, size, left, progress)
            left -= size
        small = {sha: size for sha, size in lacking.items() if sha not in single}
        groups = packs.group(small, _PACK_BYTES) or [[]]
        for number, shas in enumerate(groups):
            fd, path = fs.tmp_file("out-")
            try:
                with open(fd, "wb") as out:
                    last = number == len(groups) - 1
                    _write_small(out, [canonical(tree) for tree in unknown.values()] if last else [], list(unknown))
                    files, size = packs.write(fs, shas, out)
                self._deliver(path, size, {"op": "unpack", "needed_bytes": left})
            finally:
                os.unlink(path)
            left -= size
            progress.add(files, size)

    def _send_parts(self, fs: MonkeyFS, sha: str, size: int, left: int, progress: _Progress) -> None:
        """One large blob, a part at a time: progress moves, and the temporary folders hold no more than a part."""
        token = uuid.uuid4().hex
        with open(fs.blob_path(sha), "rb") as source:
            for offset in range(0, size, _PART_BYTES):
                length = min(_PART_BYTES, size - offset)
                fd, path = fs.tmp_file("part-")
                try:
                    with open(fd, "wb") as out:
                        out.writelines(chunks_of(source.fileno(), length))
                    part = {"token": token, "offset": offset, "blob": sha if offset + length == size else None}
                    self._deliver(path, length, {"op": "unpack", "part": part, "needed_bytes": left - offset})
                finally:
                    os.unlink(path)
                progress.add(0 if part["blob"] is None else 1, length)

    def _deliver(self, path: str, size: int, request: dict[str, Any]) -> None:
        remote = self._remote("pack")
        try:
            self._transfer_file(path, remote)
        except AnsibleError:
            # The connections tell a full disk in words of their own, or not at all.
            folder = os.path.dirname(remote)
            free = self.ask({"op": "space", "path": folder})["free_bytes"]
            if free < size:
                raise AnsibleActionFail(_full(folder, size, free)) from None
            raise
        self._fixup_perms2((os.path.dirname(remote), remote), execute=False)
        self.ask({**request, "path": remote})

    def _remote(self, name: str) -> str:
        path: str = self._connection._shell.join_path(self.remote_folder(), f"monkey-{name}")
        return path


class _Progress:
    def __init__(self, path: str | None, host: str | None, total: int) -> None:
        self._path = path
        self._line = {"host": host, "sent_bytes": 0, "total_bytes": total, "files": 0}
        if total:
            self.add(0, 0)

    def add(self, files: int, size: int) -> None:
        self._line["files"] += files  # type: ignore[operator]
        self._line["sent_bytes"] += size  # type: ignore[operator]
        if self._path:
            # One write in append mode: hosts of one play share the file.
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(self._line) + "\n")


def _write_small(out: Any, contents: list[bytes], names: list[str]) -> None:
    out.write(packs.MAGIC)
    for name, content in zip(names, contents, strict=False):
        out.write(b"%s %d\n" % (name.encode("ascii"), len(content)) + content)
    out.write(packs.END)


def _share(tree: Tree, lacking: dict[str, int]) -> dict[str, int]:
    mine = [size for sha, size in blobs_of(tree).items() if sha in lacking]
    return {"sent_files": len(mine), "sent_bytes": sum(mine)}


def _paths(trees: dict[str, Tree], lacking: dict[str, int]) -> str:
    entries = [entry for tree in trees.values() for entry in tree["entries"] if entry["type"] == "file"]
    lines = [f"{entry['path']} ({entry['size']} bytes)" for entry in entries if entry["sha256"] in lacking]
    if len(lines) > _DIFF_PATHS:
        lines[_DIFF_PATHS:] = [f"… and {len(lines) - _DIFF_PATHS} more"]
    return "".join(f"+ {line}\n" for line in lines)


def _full(path: str, needed: int, free: int) -> str:
    return f"the disk is full: {path} needs {needed} bytes, {free} are free"
