#!/usr/bin/python
# Apache License 2.0 (see https://www.apache.org/licenses/LICENSE-2.0)
"""Make the environment that jobs run in, once per content and host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: environment
short_description: Make the environment that jobs run in, once per content and host
version_added: "0.1.0"
description:
  - Makes a virtual environment from the text of a requirements file, a conda environment from the text of an
    C(environment.yml), or a container image from the text of a C(Dockerfile) or from a registry.
  - Environments are kept in the folder C(envs) of the client's folder.
  - What is made is named after its content and the machine it is for, so that it is made once on a host, whatever the
    number of jobs and runs that ask for it, also at the same time. A build that was cut off does not count as made.
  - Virtual environments are made by uv where the host has it (in PATH or C(~/.local/bin)), else by C(python3 -m venv)
    and pip. The host's own configuration of pip and uv holds.
  - On a host whose Python has no ensurepip (Debian without C(python3-venv)) and that has no uv, the control machine
    sends the pip that its own Python carries.
options:
  kind:
    description: What to make. V(none) makes nothing.
    type: str
    choices: [none, pip, conda, docker]
    default: none
  content:
    description:
      - Text of the requirements file (O(kind=pip)), of the C(environment.yml) (O(kind=conda)) or of the C(Dockerfile)
        (O(kind=docker)). It is written to a file on the host as it is.
      - A file that it refers to is not there. The context of a C(Dockerfile) is empty.
    type: str
  image:
    description: Image to use as it is, pulled unless the host has it. For O(kind=docker), instead of O(content).
    type: str
  python:
    description:
      - Interpreter to make a virtual environment with, as a path or a name in PATH. For O(kind=pip).
      - Omitted, the one that Ansible uses on the host.
    type: str
  pip_wheel:
    description:
      - Path on the host of a pip wheel, to make a virtual environment with where Python has no ensurepip. With it uv
        is not used. The control machine fills it in by itself when it is needed.
    type: path
extends_documentation_fragment:
  - monkey.runner.client_home
author:
  - Monkey developers (@monkey)
attributes:
  check_mode:
    support: full
    description: Tells whether it would make something, and makes nothing.
  diff_mode:
    support: none
    description: What is made has no text to compare.
  platform:
    support: full
    description: Linux.
    platforms: linux
"""

EXAMPLES = r"""
- name: Make the environment of a project
  monkey.runner.environment:
    kind: pip
    content: "{{ lookup('ansible.builtin.file', 'requirements.txt') }}"
  register: made

- name: Make a conda environment
  monkey.runner.environment:
    kind: conda
    content: |
      dependencies:
        - python=3.11
        - numpy

- name: Have an image ready
  monkey.runner.environment:
    kind: docker
    image: docker.io/library/python:3.11
"""

RETURN = r"""
environment:
  description: What an attempt's specification says about its environment.
  returned: success
  type: dict
  sample: {"kind": "pip", "path": "/home/me/.monkey-client/default/envs/pip-0f3c"}
  contains:
    kind:
      description: As given.
      type: str
      returned: always
    path:
      description: Folder of the environment.
      type: str
      returned: for kinds pip and conda
    engine:
      description: Program that runs the image.
      type: str
      returned: for kind docker
    image:
      description: Image to run.
      type: str
      returned: for kind docker
    options:
      description: Further options for the engine.
      type: list
      elements: str
      returned: for kind docker
built:
  description: Whether it was made now, rather than there already. In check mode, whether it would be made.
  returned: success
  type: bool
log_tail:
  description: The last lines of the tool that made it, or that failed.
  returned: always
  type: str
pip_missing:
  description: Whether the host needs the pip of the control machine.
  returned: when that is why it failed
  type: bool
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.arguments import HOME
from ..module_utils.environments.conda import CondaEnvironment
from ..module_utils.environments.container import ContainerEnvironment
from ..module_utils.environments.errors import EnvironmentBuildError, PipMissingError
from ..module_utils.environments.pip import PipEnvironment


def _chosen(params: dict[str, Any]) -> PipEnvironment | CondaEnvironment | ContainerEnvironment:
    home = os.path.abspath(params["home"])
    kind, content, image = params["kind"], params["content"], params["image"]
    if kind == "docker":
        if (content is None) == (image is None):
            raise EnvironmentBuildError("kind docker wants content (text of a Dockerfile) or image, one of the two")
        return ContainerEnvironment(home, content, image)
    if content is None:
        raise EnvironmentBuildError(f"kind {kind} wants content: the text of the {_FILES[kind]}")
    if image is not None:
        raise EnvironmentBuildError(f"image is for kind docker, not for kind {kind}")
    if kind == "conda":
        return CondaEnvironment(home, content)
    return PipEnvironment(home, content, params["python"], params["pip_wheel"])


_FILES = {"pip": "requirements file", "conda": "environment.yml"}


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Do what the module is asked for and return its result.

    Raises EnvironmentBuildError, and OSError when the client's folder cannot be written.
    """
    if params["kind"] == "none":
        return {"changed": False, "built": False, "environment": {"kind": "none"}, "log_tail": ""}
    chosen = _chosen(params)
    built, log_tail = (not chosen.is_there(), "") if check_mode else chosen.build()
    return {"changed": built, "built": built, "environment": chosen.result(), "log_tail": log_tail}


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "home": HOME,
            "kind": {"type": "str", "choices": ["none", "pip", "conda", "docker"], "default": "none"},
            "content": {"type": "str"},
            "image": {"type": "str"},
            "python": {"type": "str"},
            "pip_wheel": {"type": "path"},
        },
        supports_check_mode=True,
    )
    result: dict[str, Any] = {}
    failure: dict[str, Any] | None = None
    try:
        result = run(module.params, module.check_mode)
    except PipMissingError as error:
        failure = {"msg": str(error), "log_tail": error.log_tail, "pip_missing": True}
    except EnvironmentBuildError as error:
        failure = {"msg": str(error), "log_tail": error.log_tail}
    except OSError as error:
        place = error.filename or module.params["home"]
        failure = {"msg": f"cannot write the environment at {place}: {error.strerror or error}", "log_tail": ""}
    if failure is not None:
        module.fail_json(**failure)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
