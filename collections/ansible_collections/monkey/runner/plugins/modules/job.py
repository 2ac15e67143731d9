#!/usr/bin/python
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Read the keys of a job.yml: the documentation; the action plugin does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job
short_description: Read the keys of a job.yml that a play was given as variables
version_added: 0.1.0
description:
  - Checks the variables that have the names of job.yml's keys, and returns what the roles of this collection take. A
    key that cannot be used fails with one message that names it and what was expected.
  - What is in these variables is data, never a template. Arguments that hold braces arrive as they are.
  - Extra variables (C(-e)) that look like a key of job.yml mistyped are refused. All other variables are left alone.
  - Nothing is done on the host.
options:
  folder:
    description:
      - Folder on the control machine that paths of the job are in. A relative one starts from the working folder of
        ansible-playbook. Omitted, it is that folder itself.
    type: path
  juid:
    description: Name of the job. Omitted, one is made from date and time.
    type: str
attributes:
  check_mode:
    support: full
    description: Changes nothing in either mode.
  diff_mode:
    support: none
    description: Nothing changes.
author:
  - Monkey developers (@monkey)
seealso:
  - module: monkey.runner.launch
"""

EXAMPLES = r"""
- name: Read the job
  monkey.runner.job:
    folder: /home/me/mnist
  vars:
    command: python3 mnist.py --learning-rate 0.14
    persist:
      - output
  register: job

- name: Launch it
  ansible.builtin.include_role:
    name: monkey.runner.launch
  vars:
    launch_attempts:
      - "{{ job.attempt }}"
"""

RETURN = r"""
juid:
  description: Name of the job.
  returned: success
  type: str
  sample: 26-11-21-101533042
folder:
  description: The folder that paths of the job are in.
  returned: success
  type: str
attempt:
  description: The attempt, as M(monkey.runner.launch) takes it, without C(code), C(data) and C(environment).
  returned: success
  type: dict
code:
  description: What role P(monkey.runner.code#role) takes, as C(path), C(ignore) and C(data).
  returned: success
  type: dict
data:
  description: Data sets, each with C(name) and C(path) in the work folder, in the order of those in C(code).
  returned: success
  type: list
  elements: dict
persist:
  description: What role P(monkey.runner.collect#role) takes, each with C(name) and C(path).
  returned: success
  type: list
  elements: dict
install:
  description: What role P(monkey.runner.install#role) takes.
  returned: success
  type: list
  elements: str
environment:
  description: What role P(monkey.runner.environment#role) takes, as C(kind), and C(content) or C(image) or neither.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Entry point; reached only when the action plugin was passed by."""
    module = AnsibleModule(
        argument_spec={"folder": {"type": "path"}, "juid": {"type": "str"}},
        supports_check_mode=True,
    )
    module.fail_json(msg="this module works through its action plugin: call it as monkey.runner.job in a task")


if __name__ == "__main__":
    main()
