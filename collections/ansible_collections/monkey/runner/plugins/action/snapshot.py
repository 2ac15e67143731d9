# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Takes a folder of the control machine into its store."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils import arguments as shared
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from ansible_collections.monkey.runner.plugins.module_utils.snapshot import snapshot
from ansible_collections.monkey.runner.plugins.plugin_utils.actions import CheckedAction
from ansible_collections.monkey.runner.plugins.plugin_utils.foretold import foretell


class ActionModule(CheckedAction):
    """Action of ``monkey.runner.snapshot``."""

    _requires_connection = False
    arguments = {
        "monkeyfs": shared.MONKEYFS,
        "path": {"type": "path", "required": True},
        "ignore": {"type": "list", "elements": "str", "default": []},
        "gitignore": {"type": "bool", "default": True},
    }

    def act(self) -> dict[str, Any]:
        """Read the folder, and take in what the store lacks of it."""
        args = self._args
        fs = MonkeyFS(args["monkeyfs"])
        folder = self._loader.path_dwim(args["path"])
        check_mode = self._task.check_mode
        # Beside the store, so that a second snapshot of ten thousand files reads none of them again.
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()
        cache_file = None if check_mode else os.path.join(fs.root, "scans", f"{key}.json")
        taken = snapshot(folder, args["ignore"], args["gitignore"], cache_file)
        changed = not fs.has_tree(taken.id)
        if check_mode:
            foretell(taken.id, taken.tree)
        else:
            _id, files, _size = fs.take(taken.tree, taken.paths)
            changed = changed or files > 0
        return {"changed": changed, "tree": taken.id, "files": taken.files, "size_bytes": taken.size_bytes}
