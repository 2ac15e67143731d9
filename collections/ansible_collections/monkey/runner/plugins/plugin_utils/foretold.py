"""Trees that a run in check mode would have put into the store, for the tasks that come after.

They are kept in the temporary folder that ansible-playbook makes for one run and removes at its end.
"""

from __future__ import annotations

import os

from ansible import constants
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees import Tree, canonical, parse


def _path(tree_id: str) -> str:
    return os.path.join(constants.DEFAULT_LOCAL_TMP, f"monkey-tree-{tree_id}.json")


def foretell(tree_id: str, tree: Tree) -> None:
    """Keep a tree for this run of ansible-playbook. Raises OSError."""
    # Hosts of one play do this at the same time, with the same content.
    temporary = f"{_path(tree_id)}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(canonical(tree))
    os.replace(temporary, _path(tree_id))


def foretold(tree_id: str) -> Tree | None:
    """The tree, None when this run has not foretold it. Raises MonkeyFSError for one that is damaged."""
    try:
        with open(_path(tree_id), "rb") as file:
            return parse(file.read(), tree_id)
    except FileNotFoundError:
        return None
