# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Brings persisted folders and logs of attempts back: the control machine's side."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.monkey.runner.plugins.module_utils import arguments as shared
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import packs
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.entries import Tree, check, check_path
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.errors import MonkeyFSError, check_sha
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees import materialise, scan, summary, tree_id
from ansible_collections.monkey.runner.plugins.plugin_utils.actions import HostAction

_PACK_BYTES = 64 * 1000 * 1000
# base64 through the module's result: only where the connection's user may not read what the module's user wrote.
_READ_BYTES = 4 * 1000 * 1000
_ROUNDS = 5

# sha256 -> (size in bytes, path below attempts/)
Wanted = dict[str, tuple[int, str]]


class ActionModule(HostAction):
    """Action of ``monkey.runner.collect``."""

    module = "monkey.runner.collect"
    passed = ("home", "monkeyfs", "attempts")
    # `home` is a path of the host: a `~` in it means the user there.
    arguments = {
        "home": {"type": "str"},
        "monkeyfs": shared.MONKEYFS,
        "attempts": shared.collected(),
        "dest": {"type": "path"},
    }

    def act(self) -> dict[str, Any]:
        """Ask what there is, and fetch what the store lacks of it."""
        fs = MonkeyFS(self._args["monkeyfs"])
        attempts = self._args["attempts"]
        for wanted in attempts:
            if "/" in check_path(wanted["juid"]):
                raise MonkeyFSError(f"{wanted['juid']!r} is not a JUID")
            for item in wanted["persist"]:
                check_path(item["path"])
        fetched = 0
        for left in reversed(range(_ROUNDS)):
            found = self.ask({"op": "scan", "logs": bool(self._args["dest"])})["attempts"]
            lacking = _lacking(fs, attempts, found)
            if self._task.check_mode:
                fetched = sum(size for size, _where in lacking.values())
                break
            changed = self._fetch(fs, lacking, any(have is not None and have["staged"] for have in found))
            fetched += sum(size for sha, (size, _where) in lacking.items() if sha not in changed)
            if not changed:
                break
            if not left:
                _leave_out(found, changed)
        return self._finish(fs, found, fetched)

    def _finish(self, fs: MonkeyFS, found: list[dict[str, Any] | None], fetched: int) -> dict[str, Any]:
        changed = fetched > 0
        results = []
        for wanted, have in zip(self._args["attempts"], found, strict=True):
            if have is None:
                continue
            items = []
            for item, part in zip(wanted["persist"], have["persist"], strict=True):
                tree = part["tree"]
                files, size_bytes = summary(tree)
                changed = changed or not fs.has_tree(tree_id(tree))
                if not self._task.check_mode:
                    fs.put_tree(tree)
                changed = self._write_out(fs, tree, wanted["juid"], item["path"]) or changed
                skipped = [{"path": path, "why": why} for path, why in part["skipped"]]
                found_here = {"tree": tree_id(tree), "files": files, "size_bytes": size_bytes, "skipped": skipped}
                items.append({**item, **found_here})
            if have["log"] is not None:
                log = {"path": "log", "type": "file", "mode": 0o644, **have["log"]}
                changed = self._write_out(fs, {"entries": [log]}, wanted["juid"], "") or changed
            results.append({"juid": wanted["juid"], "attempt": wanted["attempt"], "persist": items})
        result: dict[str, Any] = {"changed": changed, "attempts": results, "sent_bytes": fetched}
        gone = [
            f"{wanted['juid']}.{wanted['attempt']}"
            for wanted, have in zip(self._args["attempts"], found, strict=True)
            if have is None
        ]
        if gone:
            result.update(failed=True, msg=f"the client on this host has no attempt {', '.join(gone)}")
        return result

    def _write_out(self, fs: MonkeyFS, tree: Tree, juid: str, path: str) -> bool:
        """Lays a tree over `dest/juid/path`: whether that changed, or in check mode would change, anything."""
        dest = self._args["dest"]
        if not dest:
            return False
        folder = os.path.join(dest, juid, *path.split("/")) if path else os.path.join(dest, juid)
        if _already(folder, tree, whole=bool(path), beneath=dest):
            return False
        if not self._task.check_mode:
            os.makedirs(dest, exist_ok=True)
            materialise(fs, tree, folder, beneath=dest)
        return True

    def _fetch(self, fs: MonkeyFS, lacking: Wanted, staged: bool) -> set[str]:
        """Fetches what it can: the blobs that have changed on the host since they were seen.

        The last request also has the copies removed that the host may have made of them.
        """
        changed: set[str] = set()
        single = {sha for sha, (size, _where) in lacking.items() if size > _PACK_BYTES}
        for sha in single:
            size, where = lacking[sha]
            try:
                with fs.batch() as batch:
                    batch.add(self._parts(fs, size, where), sha, size)
            except MonkeyFSError:
                changed.add(sha)
        small = {sha: size for sha, (size, _where) in lacking.items() if sha not in single}
        groups = packs.group(small, _PACK_BYTES)
        if staged and not groups:
            self.ask({"op": "unstage"})
        for number, shas in enumerate(groups):
            items = [[sha, small[sha], lacking[sha][1]] for sha in shas]
            needed = sum(small[sha] for sha in shas)
            request = {"op": "pack", "folder": self.remote_folder(), "items": items, "needed_bytes": needed}
            reply = self.ask({**request, "last": staged and number == len(groups) - 1})
            path = self._fetch_output(fs, reply)
            try:
                with open(path, "rb") as stream:
                    packs.read(stream, fs, announced=small)
            finally:
                os.unlink(path)
            changed.update(reply["changed_blobs"])
        return changed

    def _parts(self, fs: MonkeyFS, size: int, where: str) -> Iterator[bytes]:
        """A large file piece by piece, so that neither side needs room for a second copy of it."""
        for offset in range(0, size, _PACK_BYTES):
            length = min(_PACK_BYTES, size - offset)
            request = {"op": "part", "folder": self.remote_folder(), "where": where, "offset": offset, "size": length}
            path = self._fetch_output(fs, self.ask({**request, "needed_bytes": length}))
            try:
                with open(path, "rb") as file:
                    yield from iter(lambda: file.read(1 << 20), b"")
            finally:
                os.unlink(path)

    def _fetch_output(self, fs: MonkeyFS, reply: dict[str, Any]) -> str:
        """Fetches the file that the module wrote, and removes it there: its path here."""
        fd, path = fs.tmp_file("fetch-")
        os.close(fd)
        try:
            inside = os.path.dirname(reply["path"]) == self.remote_folder()
            if inside:
                try:
                    self._connection.fetch_file(reply["path"], path)
                except AnsibleError:
                    inside = False
            if not inside or os.path.getsize(path) != reply["size_bytes"]:
                with open(path, "wb") as out:
                    for offset in range(0, reply["size_bytes"], _READ_BYTES):
                        request = {"op": "read", "path": reply["path"], "offset": offset, "size": _READ_BYTES}
                        out.write(base64.b64decode(self.ask(request)["data"]))
            if not inside:
                self.ask({"op": "drop", "path": reply["path"]})
        except BaseException:
            os.unlink(path)
            raise
        return path


def _lacking(fs: MonkeyFS, attempts: list[dict[str, Any]], found: list[dict[str, Any] | None]) -> Wanted:
    """What the store lacks. What the host says is checked first: it may be a host that is not ours alone."""
    wanted: Wanted = {}
    for asked, have in zip(attempts, found, strict=True):
        if have is None:
            continue
        name = f"{asked['juid']}.{asked['attempt']}"
        staged = set(have["staged"])
        for item, part in zip(asked["persist"], have["persist"], strict=True):
            for entry in check(part["tree"])["entries"]:
                if entry["type"] == "file":
                    sha = entry["sha256"]
                    place = f"collect/{sha}" if sha in staged else f"work/{item['path']}/{entry['path']}"
                    if sha not in wanted or sha in staged:
                        wanted[sha] = (entry["size"], f"{name}/{place}")
        if have["log"] is not None:
            wanted[check_sha(have["log"]["sha256"])] = (int(have["log"]["size"]), f"{name}/log")
    missing = fs.missing({sha: size for sha, (size, _where) in wanted.items()})
    return {sha: wanted[sha] for sha in missing}


def _leave_out(found: list[dict[str, Any] | None], changed: set[str]) -> None:
    """What changed at every try is named and left out; a collect during a run must not fail for it."""
    for have in found:
        if have is None:
            continue
        if have["log"] is not None and have["log"]["sha256"] in changed:
            have["log"] = None
        for part in have["persist"]:
            entries = part["tree"]["entries"]
            bad = {entry["path"] for entry in entries if entry.get("sha256") in changed}
            part["tree"] = {"entries": [entry for entry in entries if entry["path"] not in bad]}
            part["skipped"] += [[path, "keeps changing while it is read"] for path in sorted(bad)]


def _already(folder: str, tree: Tree, whole: bool, beneath: str) -> bool:
    """Whether all of `tree` lies in `folder` already; a single file at its top is looked at without the rest."""
    top = {entry["path"] for entry in tree["entries"]}
    try:
        there, _paths = scan(
            folder,
            skip=None if whole else (lambda path, _is_folder: path not in top),
            problem=lambda _path, _why: None,
            beneath=beneath,
        )
    except OSError:
        return False
    have = {entry["path"]: entry for entry in there["entries"]}
    folders = {path.rpartition("/")[0] for path in have}
    return all(
        have.get(entry["path"]) == entry or (entry["type"] == "dir" and entry["path"] in folders)
        for entry in tree["entries"]
    )
