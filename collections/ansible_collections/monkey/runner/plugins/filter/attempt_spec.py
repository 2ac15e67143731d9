"""The spec of an attempt, from the keys of a job.yml"""

from __future__ import annotations

DOCUMENTATION = r"""
name: attempt_spec
short_description: The spec of an attempt, from the keys of a job.yml
version_added: "0.1.0"
description:
  - Checks the keys and gives what M(monkey.runner.launch) takes, without code, data and environment.
options:
  _input:
    description: Keys C(name command persist env setup resources time_limit).
    type: dict
    required: true
  juid:
    description: Name of the job.
    type: str
    required: true
positional: juid
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Make the spec of an attempt
  ansible.builtin.set_fact:
    spec: "{{ {'command': ['true']} | monkey.runner.attempt_spec('26-11-21-001') }}"
"""

RETURN = r"""
_value:
  description: The attempt.
  type: dict
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.monkey.runner.plugins.module_utils import job_spec


def _attempt_spec(*args: Any, **kwargs: Any) -> Any:
    try:
        return job_spec.attempt_spec(*args, **kwargs)
    except job_spec.JobSpecError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter, as Ansible finds it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"attempt_spec": _attempt_spec}
