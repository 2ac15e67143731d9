# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Takes a folder of the control machine into its store."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.errors import MonkeyFSError
from ansible_collections.monkey.runner.plugins.module_utils.snapshot import snapshot
from ansible_collections.monkey.runner.plugins.plugin_utils.foretold import foretell


class ActionModule(ActionBase):  # type: ignore[misc]
    """Action of ``monkey.runner.snapshot``."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the folder, and take in what the store lacks of it."""
        super().run(tmp, task_vars)
        _unused, args = self.validate_argument_spec(
            argument_spec={
                "monkeyfs": {"type": "path", "required": True},
                "path": {"type": "path", "required": True},
                "ignore": {"type": "list", "elements": "str", "default": []},
                "gitignore": {"type": "bool", "default": True},
            }
        )
        fs = MonkeyFS(args["monkeyfs"])
        folder = self._loader.path_dwim(args["path"])
        check_mode = self._task.check_mode
        # Beside the store, so that a second snapshot of ten thousand files reads none of them again.
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()
        cache_file = None if check_mode else os.path.join(fs.root, "scans", f"{key}.json")
        try:
            taken = snapshot(folder, args["ignore"], args["gitignore"], cache_file)
            changed = not fs.has_tree(taken.id)
            if check_mode:
                foretell(taken.id, taken.tree)
            else:
                _id, files, _size = fs.take(taken.tree, taken.paths)
                changed = changed or files > 0
        except MonkeyFSError as error:
            raise AnsibleActionFail(str(error)) from error
        except OSError as error:
            raise AnsibleActionFail(f"{error.filename or fs.root}: {error.strerror}") from error
        return {"changed": changed, "tree": taken.id, "files": taken.files, "size_bytes": taken.size_bytes}
