#!/usr/bin/python
# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Take a folder of the control machine into its store: the documentation; the action plugin does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: snapshot
short_description: Take a folder of the control machine into its content-addressed store
version_added: "0.1.0"
description:
  - Reads a folder on the control machine, less what C(.gitignore) files and O(ignore) leave out, and puts it into the
    store, from where M(monkey.runner.sync) sends it to hosts. Nothing is done on the host.
  - The id of the tree names its content, so that the same content has the same id, whoever took it in and when.
  - C(.git) and C(monkey-output) are never taken in. Links that leave the folder, sockets, pipes, devices, and names
    that are not UTF-8 are refused.
extends_documentation_fragment:
  - monkey.runner.monkeyfs
options:
  path:
    description: Folder on the control machine. A relative one is looked up from the playbook's folder.
    type: path
    required: true
  ignore:
    description:
      - Patterns in the form of C(.gitignore) lines, relative to O(path). They stand above those of C(.gitignore) files.
      - C(data**) means the folder C(data) and all in it.
    type: list
    elements: str
    default: []
  gitignore:
    description: Whether C(.gitignore) files hold, also those above O(path) in the same git repository.
    type: bool
    default: true
requirements:
  - pathspec >= 1.0 (Python package, on the control machine)
author:
  - Monkey developers (@monkey)
attributes:
  check_mode:
    support: full
    description: Reads the folder and returns what it would return, but does not write to the store.
  diff_mode:
    support: none
    description: The folder is not changed.
  platform:
    support: full
    platforms: posix
    description: Nothing is done on the host.
seealso:
  - module: monkey.runner.sync
"""

EXAMPLES = r"""
- name: Take in the code
  monkey.runner.snapshot:
    path: /home/me/mnist
    ignore:
      - data
      - "*.ckpt"
    monkeyfs: ~/.monkey/monkeyfs
  register: code
"""

RETURN = r"""
tree:
  description: Id of the tree.
  returned: success
  type: str
  sample: 4f1c0b6f5b1f8c6a0c0a3f0c3a0c5a1fd8e2b0f7d8a6c5b4a39281706f5e4d3c
files:
  description: Number of files in the tree.
  returned: success
  type: int
  sample: 12
size_bytes:
  description: Bytes of all files in the tree.
  returned: success
  type: int
  sample: 48123
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    """Entry point; reached only when the action plugin was passed by."""
    module = AnsibleModule(
        argument_spec={
            "monkeyfs": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "gitignore": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="this module works through its action plugin: call it as monkey.runner.snapshot in a task")


if __name__ == "__main__":
    main()
