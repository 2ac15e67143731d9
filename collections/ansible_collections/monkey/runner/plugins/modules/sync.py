#!/usr/bin/python
# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Send to a host what its store lacks of code and data: the host's side."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sync
short_description: Send to a host what its store lacks of code and data
version_added: "0.1.0"
description:
  - Sends trees of the control machine's content-addressed store to the store of a Monkey client. The host is asked
    first, so that content which it has already, from whatever job, is not sent again.
  - Every file is verified against its SHA-256 before it gets its name in the host's store. A transfer that was cut off
    leaves nothing half written, and the next one goes on with what is still missing.
extends_documentation_fragment:
  - monkey.runner.client_home
  - monkey.runner.monkeyfs
options:
  trees:
    description: Ids of trees of code and persisted folders, as M(monkey.runner.snapshot) returns them.
    type: list
    elements: str
    default: []
  data_trees:
    description: Ids of trees of data sets.
    type: list
    elements: str
    default: []
  progress_file:
    description:
      - File on the control machine. While something is sent, a JSON line with C(host), C(sent_bytes), C(total_bytes)
        and C(files) is appended to it after each pack of at most 64 MB.
    type: path
  request:
    description: What the action plugin asks of the host. Not for tasks.
    type: dict
author:
  - Monkey developers (@monkey)
attributes:
  check_mode:
    support: full
    description: Asks the host, tells what would be sent, and sends nothing.
  diff_mode:
    support: full
    description: Lists the paths of the first files that are sent.
  platform:
    support: full
    platforms: posix
    description: Needs Python 3.8 or later on the host.
notes:
  - Works with any connection and with C(become), since it needs nothing but copying a file to the host.
seealso:
  - module: monkey.runner.snapshot
  - module: monkey.runner.launch
"""

EXAMPLES = r"""
- name: Take in the code
  monkey.runner.snapshot:
    path: /home/me/mnist
    monkeyfs: ~/.monkey/monkeyfs
  register: code

- name: Send what the host lacks of it
  monkey.runner.sync:
    monkeyfs: ~/.monkey/monkeyfs
    trees:
      - "{{ code.tree }}"
"""

RETURN = r"""
sent_files:
  description: Number of contents that were sent, each once (in check mode, that would be).
  returned: success
  type: int
  sample: 1
sent_bytes:
  description: Bytes of these contents.
  returned: success
  type: int
  sample: 812
trees:
  description: >-
    For each tree id what of it the host lacked, as C(sent_files) and C(sent_bytes). Content that two trees share is in
    both, but is sent once.
  returned: success
  type: dict
"""

import errno
import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.answering import answer_with
from ..module_utils.arguments import HOME, MONKEYFS, REQUEST
from ..module_utils.monkeyfs import packs
from ..module_utils.monkeyfs.blobs import MonkeyFS, usage_of
from ..module_utils.monkeyfs.errors import MonkeyFSError
from ..module_utils.monkeyfs.trees import blobs_of, parse

# Larger lists of blobs come as a file.
_MAX_TREES_BYTES = 1 << 30


def missing(fs, tree_ids, sizes):
    """What the store lacks of the trees; `sizes` {sha256: bytes} is what the control machine knows of them, or None."""
    wanted = dict(sizes or {})
    unknown = []
    for tree_id in tree_ids:
        try:
            wanted.update(blobs_of(fs.get_tree(tree_id)))
        except MonkeyFSError:
            unknown.append(tree_id)
    return {
        "unknown_trees": unknown,
        "missing": fs.missing(wanted),
        "free_bytes": usage_of(fs)["free_bytes"],
        "store": fs.root,
    }


def read_list(path):
    """{sha256: bytes} from a file of lines `sha256 bytes`."""
    with open(path, encoding="ascii") as file:
        return {sha: int(size) for sha, size in (line.split() for line in file)}


def take_part(fs, part, path):
    """Adds a part of a large blob to those that came before it; the last one names the blob, and it is taken in."""
    if not re.match("^[0-9a-f]{32}$", part["token"]):
        raise MonkeyFSError("%r is not the name of a transfer" % part["token"])
    folder = os.path.join(fs.root, "tmp")
    os.makedirs(folder, exist_ok=True)
    whole = os.path.join(folder, "part-%s" % part["token"])
    with open(path, "rb") as source, open(whole, "ab") as out:
        if out.tell() != part["offset"]:
            raise MonkeyFSError("a part of a blob is missing: %d bytes came, not %d" % (out.tell(), part["offset"]))
        shutil.copyfileobj(source, out, 1 << 20)
    if part["blob"]:
        try:
            fs.put_file(whole, part["blob"])
        finally:
            os.unlink(whole)


def unpack(fs, request, path):
    """Takes in one transfer: a part of a large blob, or a pack of trees and after it a pack of their blobs."""
    fs.sweep()
    if request.get("part"):
        take_part(fs, request["part"], path)
        return
    with open(path, "rb") as stream:
        contents = packs.read_small(stream, _MAX_TREES_BYTES, last=False)
        packs.read(stream, fs)
    for tree_id, content in contents.items():
        fs.put_tree(parse(content, tree_id))


def answer(module):
    """The result of one request."""
    request = module.params["request"]
    if not request:
        raise MonkeyFSError("this module works through its action plugin: call it as monkey.runner.sync in a task")
    fs = MonkeyFS(os.path.join(module.params["home"], "store"))
    operation = request["op"]
    if operation == "missing":
        sizes = read_list(request["list"]) if request.get("list") else request.get("sizes")
        return missing(fs, module.params["trees"] + module.params["data_trees"], sizes)
    if operation == "space":
        found = os.statvfs(request["path"])
        return {"free_bytes": found.f_bavail * found.f_frsize}
    if operation == "unpack":
        try:
            # The store may be there before the client is; what is in it is nobody else's business.
            os.makedirs(module.params["home"], 0o700, exist_ok=True)
            unpack(fs, request, request["path"])
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise MonkeyFSError(
                "the disk is full: %s needs %d bytes, %d are free"
                % (fs.root, request["needed_bytes"], usage_of(fs)["free_bytes"])
            ) from error
        return {}
    raise MonkeyFSError("unknown request %r" % operation)


def main():
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "monkeyfs": MONKEYFS,
            "trees": {"type": "list", "elements": "str", "default": []},
            "data_trees": {"type": "list", "elements": "str", "default": []},
            "progress_file": {"type": "path"},
            "request": REQUEST,
        },
        supports_check_mode=True,
        no_log=True,  # long lists of checksums have no place in the host's syslog
    )
    answer_with(module, answer, (MonkeyFSError,), changed=False)


if __name__ == "__main__":
    main()
