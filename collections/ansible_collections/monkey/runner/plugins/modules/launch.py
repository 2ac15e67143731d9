#!/usr/bin/python
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Module monkey.runner.launch."""

from __future__ import annotations

DOCUMENTATION = r"""
module: launch
short_description: Hand attempts of jobs to the client of a host
version_added: 0.1.0
description:
  - Hands the whole share of a host over in one call. What is accepted is on the host's disk when the module returns,
    and runs as the host's slots allow, in order.
  - An attempt that the host knows already is never run again, so the module can be repeated.
options:
  attempts:
    description:
      - What to run. The keys of each are those of the attempt spec (C(docs/interfaces.md)); C(juid), C(attempt) and
        C(command) are required.
      - Code and data have to be on the host before (see M(monkey.runner.sync)).
    type: list
    elements: dict
    required: true
  slots:
    description:
      - What attempts may use at once, with any of the keys C(cpus), C(gpus), C(memory_mb) and C(max_jobs).
      - Unset leaves it as it is.
    type: dict
extends_documentation_fragment:
  - monkey.runner.client_home
attributes:
  check_mode:
    support: full
    description: Says which attempts would be accepted.
  diff_mode:
    support: full
    description: Shows the attempts that are accepted, without the values of their environment variables.
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Run a command
  monkey.runner.launch:
    attempts:
      - juid: 26-11-21-001
        attempt: 1
        command: [python3, mnist.py, --learning-rate, "0.14"]
        code: "{{ snapshot.tree }}"
        persist:
          - name: output
            path: output
        time_limit_s: 3600
"""

RETURN = r"""
accepted:
  description: Attempts that were accepted now, as C(JUID.n).
  returned: success
  type: list
  elements: str
  sample: [26-11-21-001.1]
known:
  description: Attempts that the host knew before; they were not run again.
  returned: success
  type: list
  elements: str
cancelled:
  description: Attempts that were cancelled before they arrived or started; they will not run.
  returned: success
  type: list
  elements: str
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.monkey.runner.plugins.module_utils.answering import answer_with
from ansible_collections.monkey.runner.plugins.module_utils.arguments import HOME
from ansible_collections.monkey.runner.plugins.module_utils.client import control, install, operations
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError
from ansible_collections.monkey.runner.plugins.module_utils.client.spec import check_slots, check_spec


def _foretell(home: str, specs: list) -> dict:
    """What a launch would answer."""
    answer: dict = {"accepted": [], "known": [], "cancelled": []}
    for spec in specs:
        attempt = Attempt(home, spec["juid"], spec["attempt"])
        answer[operations.foretell(attempt)].append(attempt.key)
    return answer


def _shown(spec: dict) -> dict:
    """A spec as it may be seen: what a variable holds may be a secret of the user's."""
    if not isinstance(spec.get("env"), dict):
        return spec
    return dict(spec, env=dict.fromkeys(spec["env"], "…"))


def _diff(specs: list, accepted: list) -> dict:
    chosen = [spec for spec in specs if "%s.%s" % (spec["juid"], spec["attempt"]) in accepted]
    lines = [json.dumps(_shown(spec), indent=1, ensure_ascii=False, sort_keys=True) + "\n" for spec in chosen]
    return {"before": "", "after": "".join(lines)}


def _apply(module: AnsibleModule) -> dict:
    home = install.expand(module.params["home"])
    attempts = module.params["attempts"]
    specs = [check_spec(spec) for spec in attempts]
    slots = check_slots(module.params["slots"])
    if module.check_mode:
        answer = _foretell(home, specs)
    else:
        answer = control.ask(home, {"op": "launch", "attempts": attempts, "slots": slots}, timeout_s=600.0)
    return dict(answer, changed=bool(answer["accepted"]), diff=_diff(specs, answer["accepted"]))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "attempts": {"type": "list", "elements": "dict", "required": True},
            "slots": {"type": "dict"},
        },
        supports_check_mode=True,
        no_log=True,  # what attempts have in their environment has no place in the host's syslog
    )
    arguments = dict(module.params, attempts=[_shown(spec) for spec in module.params["attempts"]])
    invocation = {"module_args": arguments}
    answer_with(module, _apply, (ClientError, OSError), invocation=invocation)


if __name__ == "__main__":
    main()
