#!/usr/bin/python
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Module monkey.runner.attempt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: attempt
short_description: Follow, pause, resume, cancel or remove attempts on a host
version_added: 0.1.0
description:
  - Brings attempts of jobs into a state, waits until they are in it, and tells how they are.
options:
  attempts:
    description: Which attempts.
    type: list
    elements: dict
    required: true
    suboptions:
      juid:
        description: The job's id.
        type: str
        required: true
      attempt:
        description: The number of the attempt, from 1.
        type: int
        required: true
  state:
    description:
      - V(finished) changes nothing and waits for the end.
      - V(cancelled) ends all processes of an attempt. One that has not arrived yet will not start when it does.
      - V(paused) and V(running) stop and continue its processes.
      - V(absent) cancels it if need be, and removes its folder from the host. It cannot be launched again.
    type: str
    choices: [finished, cancelled, paused, running, absent]
    default: finished
  wait_s:
    description:
      - For how many seconds to wait at most; V(0) does not wait.
      - It is no error when the time is over; C(attempts) tells how far they are.
    type: float
    default: 60
extends_documentation_fragment:
  - monkey.runner.client_home
attributes:
  check_mode:
    support: full
    description: Tells how the attempts are and whether something would change; does not wait.
  diff_mode:
    support: none
    description: Attempts have no text to compare.
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Wait for the end, for an hour at most
  monkey.runner.attempt:
    attempts:
      - juid: 26-11-21-001
        attempt: 1
    wait_s: 3600
  register: ended

- name: Cancel it
  monkey.runner.attempt:
    attempts:
      - juid: 26-11-21-001
        attempt: 1
    state: cancelled
"""

RETURN = r"""
reached:
  description: Whether all attempts are in the state that was asked for.
  returned: success
  type: bool
attempts:
  description: How the attempts are, in the order given.
  returned: success
  type: list
  elements: dict
  contains:
    juid:
      description: The job's id.
      type: str
    attempt:
      description: The number of the attempt.
      type: int
    state:
      description:
        - A final state (SUCCEEDED, FAILED, FAILED_SETUP, CANCELLED, TIMED_OUT, LOST), or QUEUED, SETUP, RUNNING,
          PAUSED, CANCELLING; REMOVED, or UNKNOWN to this host.
      type: str
    exit_code:
      description: The command's exit code (128 + N when signal N killed it), none while it is not known.
      type: int
    reason:
      description: Why it ended, as a code.
      type: str
    message:
      description: Why it ended, as a sentence.
      type: str
    log_tail:
      description: The last lines of its output.
      type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.monkey.runner.plugins.module_utils.answering import answer_with
from ansible_collections.monkey.runner.plugins.module_utils.arguments import HOME, attempts_with
from ansible_collections.monkey.runner.plugins.module_utils.client import control, install
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import FINAL, Attempt
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError, tail

_POLL_S = 0.1
_SLOW_POLL_S = 1.0
_OPERATIONS = {"cancelled": "cancel", "paused": "pause", "running": "resume"}


def _reached(wanted: str, state: str) -> bool:
    if wanted == "paused":
        return state == "PAUSED" or state in FINAL
    if wanted == "running":
        return state not in ("PAUSED", "CANCELLING")
    if wanted == "absent":
        return state in ("REMOVED", "UNKNOWN")
    # What is not known here will not end here: waiting would be for nothing.
    return state in FINAL or state in ("REMOVED", "UNKNOWN")


def _needs(wanted: str, state: str) -> bool:
    """Whether there is something to do for an attempt in ``state``."""
    if wanted == "cancelled":
        return state not in (*FINAL, "REMOVED")
    if wanted == "paused":
        return state in ("QUEUED", "SETUP", "RUNNING")
    if wanted == "running":
        return state == "PAUSED"
    return wanted == "absent" and state not in ("REMOVED", "UNKNOWN")


def _order(home: str, operation: str, attempt: Attempt) -> None:
    try:
        control.ask(home, {"op": operation, "juid": attempt.juid, "attempt": attempt.number})
    except ClientError:
        # It may have ended meanwhile.
        if attempt.state() not in (*FINAL, "REMOVED", "UNKNOWN"):
            raise


def _wait(wanted: str, attempts: list, deadline: float) -> bool:
    began = time.monotonic()
    while not all(_reached(wanted, attempt.state()) for attempt in attempts):
        now = time.monotonic()
        if now >= deadline:
            return False
        # A job that has run for long is looked at less often.
        time.sleep(min(max(_POLL_S, (now - began) / 100), _SLOW_POLL_S, deadline - now))
    return True


def _describe(attempt: Attempt) -> dict:
    ended = attempt.exit() or {}
    return {
        "juid": attempt.juid,
        "attempt": attempt.number,
        "state": attempt.state(),
        "exit_code": ended.get("exit_code"),
        "reason": ended.get("reason"),
        "message": ended.get("message"),
        "log_tail": tail(attempt.path("log")),
    }


def _apply(module: AnsibleModule) -> dict:
    home = install.expand(module.params["home"])
    wanted = module.params["state"]
    attempts = [Attempt(home, item["juid"], item["attempt"]) for item in module.params["attempts"]]
    todo = [attempt for attempt in attempts if _needs(wanted, attempt.state())]
    deadline = time.monotonic() + module.params["wait_s"]
    if not module.check_mode:
        if todo or any(attempt.exists() for attempt in attempts):
            control.ensure_daemon(home)
        for attempt in todo:
            if wanted in _OPERATIONS:
                _order(home, _OPERATIONS[wanted], attempt)
            elif attempt.state() not in FINAL:
                _order(home, "cancel", attempt)
        if wanted == "absent":
            _wait("finished", attempts, deadline)
            for attempt in todo:
                if attempt.state() in FINAL:
                    _order(home, "remove", attempt)
        _wait(wanted, attempts, deadline)
    found = [_describe(attempt) for attempt in attempts]
    return {
        "changed": bool(todo),
        "attempts": found,
        "reached": all(_reached(wanted, item["state"]) for item in found),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "attempts": attempts_with(),
            "state": {
                "type": "str",
                "choices": ["finished", "cancelled", "paused", "running", "absent"],
                "default": "finished",
            },
            "wait_s": {"type": "float", "default": 60},
        },
        supports_check_mode=True,
    )
    answer_with(module, _apply, (ClientError, OSError))


if __name__ == "__main__":
    main()
