#!/usr/bin/python
# Copyright: Monkey developers
# SPDX-License-Identifier: Apache-2.0
"""Bring persisted folders and logs of attempts back: the host's side."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collect
short_description: Bring persisted folders and logs of attempts back to the control machine
version_added: "0.1.0"
description:
  - Takes the persisted folders of attempts, ended or running, into the content-addressed store of the control machine.
    Content that the store has already is not fetched again.
  - A folder that the job has not made is an empty tree.
  - A running job is not disturbed. Files that it has just changed are copied beside its working folder until they are
    fetched (at most 512 MB, or a quarter of the free space), so that what arrives is what the file was at one moment.
  - A file that changes while it is read is tried again; one that keeps changing is left out and named in C(skipped),
    and so are sockets, pipes, and links that leave the folder.
extends_documentation_fragment:
  - monkey.runner.client_home
  - monkey.runner.monkeyfs
options:
  attempts:
    description: The attempts to collect from.
    type: list
    elements: dict
    required: true
    suboptions:
      juid:
        description: The job's JUID.
        type: str
        required: true
      attempt:
        description: Number of the attempt, from 1.
        type: int
        required: true
      persist:
        description: The persisted folders.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the folder in the job.
            type: str
            required: true
          path:
            description: Path below the job's working folder.
            type: str
            required: true
  dest:
    description:
      - Folder on the control machine. With it each folder is also written out as C(JUID/path) in it, and the attempt's
        log as C(JUID/log). What is there and is not part of a result stays.
    type: path
  request:
    description: What the action plugin asks of the host. Not for tasks.
    type: dict
author:
  - Monkey developers (@monkey)
attributes:
  check_mode:
    support: full
    description: Reads the folders on the host and tells what would be fetched; nothing is written.
  diff_mode:
    support: none
    description: Results are data, not text.
  platform:
    support: full
    platforms: posix
    description: Needs Python 3.8 or later on the host.
seealso:
  - module: monkey.runner.launch
  - module: monkey.runner.attempt
"""

EXAMPLES = r"""
- name: Bring the results back
  monkey.runner.collect:
    monkeyfs: ~/.monkey/monkeyfs
    attempts:
      - juid: 26-11-21-001
        attempt: 1
        persist:
          - name: output
            path: output
    dest: ./results
"""

RETURN = r"""
attempts:
  description: >-
    The attempts in the order asked for, each with C(juid), C(attempt) and C(persist): a list of C(name), C(path),
    C(tree) (its id), C(files), C(size_bytes) and C(skipped) (a list of C(path) and C(why)).
  returned: success
  type: list
  elements: dict
sent_bytes:
  description: Bytes that were fetched (in check mode, that would be).
  returned: success
  type: int
  sample: 4096
"""

import errno
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.answering import answer_with
from ..module_utils.arguments import HOME, MONKEYFS, REQUEST, collected
from ..module_utils.monkeyfs import harvest
from ..module_utils.monkeyfs.errors import MonkeyFSError


def scan_all(module, with_logs):
    """The trees of all attempts, and what their logs hold so far; `staged` are hashes of files that were copied."""
    found = []
    room = None
    for wanted in module.params["attempts"]:
        attempt = harvest.Attempt(module.params["home"], wanted["juid"], wanted["attempt"])
        if not attempt.exists():
            found.append(None)
            continue
        caches = attempt.load_caches()
        before = {path: dict(cache) for path, cache in caches.items()}
        staging = None
        if not module.check_mode:
            attempt.unstage()
            if not attempt.ended():
                room = room or harvest.staging.Room(attempt.folder)
                staging = attempt.stage(room)
        read = staging.read if staging else None
        persist = [attempt.persisted(item["path"], caches, read) for item in wanted["persist"]]
        if caches != before and not module.check_mode:
            attempt.save_caches(caches)
        log = attempt.log() if with_logs else None
        found.append({"persist": persist, "log": log, "staged": sorted(staging.held) if staging else []})
    return found


def unstage(module):
    """Removes the copies that a scan has made."""
    for wanted in module.params["attempts"]:
        harvest.Attempt(module.params["home"], wanted["juid"], wanted["attempt"]).unstage()


def open_output(folder):
    """A new file that the control machine can fetch: (file, path).

    In the task's own temporary folder when this user may write there; given to that folder's owner, since the
    connection may belong to another user than this module (`become`). Else a private file that only
    `read` requests can fetch.
    """
    try:
        fd, path = tempfile.mkstemp(prefix="monkey-", dir=folder)
    except PermissionError:
        fd, path = tempfile.mkstemp(prefix="monkey-")
        return open(fd, "w+b"), path
    owner = os.stat(folder)
    if owner.st_uid != os.fstat(fd).st_uid:
        try:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        except PermissionError:
            pass
    return open(fd, "w+b"), path


def write_output(module, request):
    """A pack or a part of a file, written to a file on the host."""
    path = None
    try:
        out, path = open_output(request["folder"])
        with out:
            if request["op"] == "pack":
                result = {"changed_blobs": harvest.pack(module.params["home"], request["items"], out)}
            else:
                size = harvest.part(module.params["home"], request["where"], request["offset"], request["size"], out)
                result = {"size": size}
            out.flush()
            result["size_bytes"] = os.fstat(out.fileno()).st_size
    except OSError as error:
        folder = os.path.dirname(path) if path else request["folder"]
        if path is not None:
            os.unlink(path)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = os.statvfs(folder)
        raise MonkeyFSError(
            "the disk is full: %s needs %d bytes for what is fetched, %d are free"
            % (folder, request["needed_bytes"], free.f_bavail * free.f_frsize)
        ) from error
    except MonkeyFSError:
        if path is not None:
            os.unlink(path)
        raise
    result["path"] = path
    return result


def read_output(request):
    """A piece of a file that `open_output` made, for a connection whose user may not read it."""
    import base64

    with open(request["path"], "rb") as file:
        file.seek(request["offset"])
        return {"data": base64.b64encode(file.read(request["size"])).decode("ascii")}


def answer(module):
    """The result of one request."""
    request = module.params["request"]
    if not request:
        raise MonkeyFSError("this module works through its action plugin: call it as monkey.runner.collect in a task")
    operation = request["op"]
    if operation == "scan":
        return {"attempts": scan_all(module, request["logs"])}
    if operation in ("pack", "part"):
        result = write_output(module, request)
        if request.get("last"):
            unstage(module)
        return result
    if operation == "unstage":
        unstage(module)
        return {}
    if operation == "read":
        return read_output(request)
    if operation == "drop":
        os.unlink(request["path"])
        return {}
    raise MonkeyFSError("unknown request %r" % operation)


def main():
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "monkeyfs": MONKEYFS,
            "attempts": collected(),
            "dest": {"type": "path"},
            "request": REQUEST,
        },
        supports_check_mode=True,
        no_log=True,  # long lists of checksums have no place in the host's syslog
    )
    answer_with(module, answer, (MonkeyFSError,), changed=False)


if __name__ == "__main__":
    main()
