#!/usr/bin/python
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Module monkey.runner.client."""

from __future__ import annotations

DOCUMENTATION = r"""
module: client
short_description: Install and start the program that runs jobs on a host
version_added: 0.1.0
description:
  - Installs the Monkey client as one file, starts its daemon, stops it, or removes all of it.
  - Needs nothing on the host but Python 3.8. No root, no open port.
  - A daemon of another version is replaced by this one; attempts that run go on meanwhile.
options:
  state:
    description:
      - V(started) installs the client and has its daemon run.
      - V(present) installs it only.
      - V(stopped) stops the daemon. Attempts that run go on, and their end is recorded.
      - V(absent) ends all attempts, stops the daemon and removes the folder with all that is in it.
    type: str
    choices: [started, present, stopped, absent]
    default: started
  cpus:
    description: How many CPUs attempts may use at once. Unset leaves it as it is; at first that is all of the host's.
    type: float
  gpus:
    description: How many GPUs attempts may use. Unset leaves it as it is; at first that is all that nvidia-smi lists.
    type: int
  memory_mb:
    description: How much memory in MiB attempts may ask for together. Unset leaves it as it is; at first all of it.
    type: float
  max_jobs:
    description: How many attempts may run at once. Unset leaves it as it is; at first there is no such limit.
    type: int
  wait_s:
    description: With O(state=absent), for how many seconds to wait for attempts to end.
    type: float
    default: 120
extends_documentation_fragment:
  - monkey.runner.client_home
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: Shows the versions before and after.
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Run jobs on this host, four at a time
  monkey.runner.client:
    max_jobs: 4

- name: Leave nothing behind
  monkey.runner.client:
    state: absent
"""

RETURN = r"""
version:
  description: The version that is installed (a sha256), none after O(state=absent).
  returned: success
  type: str
python:
  description: Version of the Python that runs the client.
  returned: success
  type: str
  sample: 3.11.2
python_path:
  description: Path of the Python that runs the client.
  returned: success
  type: str
  sample: /usr/bin/python3
facts:
  description: What the host has.
  returned: success
  type: dict
  contains:
    cpus:
      description: CPUs that this user may use.
      type: int
    memory_mb:
      description: Memory in MiB.
      type: int
    gpus:
      description: NVIDIA GPUs, with index, name, memory_total_mb, memory_used_mb and utilization (percent).
      type: list
      elements: dict
    disk_free_mb:
      description: MiB that this user may still write beside the client.
      type: int
    hostname:
      description: The host's own name.
      type: str
"""

import os
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.monkey.runner.plugins.module_utils.answering import answer_with
from ansible_collections.monkey.runner.plugins.module_utils.arguments import HOME
from ansible_collections.monkey.runner.plugins.module_utils.client import install, machine
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError


def _apply(module: AnsibleModule) -> dict:
    given = module.params
    home = install.expand(given["home"])
    before = install.installed(home)
    check = module.check_mode
    changed = False
    if given["state"] == "absent":
        changed = install.uninstall(home, given["wait_s"], check)
    elif given["state"] == "stopped":
        changed = install.stop(home, check)
    else:
        changed = install.install(home, check)
        slots = {key: given[key] for key in ("cpus", "gpus", "memory_mb", "max_jobs") if given[key] is not None}
        changed = install.set_slots(home, slots, check) or changed
        if given["state"] == "started":
            changed = install.start(home, check) or changed
    after = install.installed(home)
    if check and changed:
        after = None if given["state"] == "absent" else install.bundle.build()[1]
    return {
        "changed": changed,
        "version": after,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "python_path": sys.executable or "python3",
        "facts": machine.facts(os.path.dirname(home) if after is None else home),
        "diff": {"before": f"version: {before}\n", "after": f"version: {after}\n"},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "state": {"type": "str", "choices": ["started", "present", "stopped", "absent"], "default": "started"},
            "cpus": {"type": "float"},
            "gpus": {"type": "int"},
            "memory_mb": {"type": "float"},
            "max_jobs": {"type": "int"},
            "wait_s": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    answer_with(module, _apply, (ClientError, OSError))


if __name__ == "__main__":
    main()
