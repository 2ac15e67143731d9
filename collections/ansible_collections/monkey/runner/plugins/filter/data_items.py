"""Data sets of an attempt, from data of a job.yml"""

from __future__ import annotations

DOCUMENTATION = r"""
name: data_items
short_description: Data sets of an attempt, from data of a job.yml
version_added: "0.1.0"
description:
  - Gives name and path on the control machine or, with the trees, name, path and tree.
options:
  _input:
    description: The entries.
    type: list
    required: true
  folder:
    description: Folder that the paths are in.
    type: str
    required: true
  trees:
    description: Ids of trees by the name of the data set.
    type: dict
positional: folder, trees
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Place the data sets
  ansible.builtin.set_fact:
    sets: "{{ [{'name': 'digits', 'path': 'data'}] | monkey.runner.data_items('/srv/code') }}"
"""

RETURN = r"""
_value:
  description: Entries with C(name), C(path) and with trees C(tree).
  type: list
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.monkey.runner.plugins.module_utils import job_spec


def _data_items(*args: Any, **kwargs: Any) -> Any:
    try:
        return job_spec.data_items(*args, **kwargs)
    except job_spec.JobSpecError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter, as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"data_items": _data_items}
