"""Folders to keep, from persist of a job.yml"""

from __future__ import annotations

DOCUMENTATION = r"""
name: persist_items
short_description: Folders to keep, from persist of a job.yml
version_added: "0.1.0"
description:
  - Gives name and path of each folder; an entry may be a path alone.
options:
  _input:
    description: The entries.
    type: list
    required: true
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Name the folders
  ansible.builtin.set_fact:
    folders: "{{ ['output'] | monkey.runner.persist_items }}"
"""

RETURN = r"""
_value:
  description: Entries with C(name) and C(path).
  type: list
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.monkey.runner.plugins.module_utils import job_spec


def _persist_items(*args: Any, **kwargs: Any) -> Any:
    try:
        return job_spec.persist_items(*args, **kwargs)
    except job_spec.JobSpecError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter, as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"persist_items": _persist_items}
