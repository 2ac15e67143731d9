"""Reads a job from the variables of a play, on the control machine."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars
from ansible_collections.monkey.runner.plugins.module_utils import job_spec
from ansible_collections.monkey.runner.plugins.plugin_utils.actions import CheckedAction

# An environment file is text that a person wrote; this is far beyond any.
_ENV_FILE_BYTES = 4 << 20


class ActionModule(CheckedAction):
    """Action of ``monkey.runner.job``."""

    _requires_connection = False
    arguments = {"folder": {"type": "path"}, "juid": {"type": "str"}}
    refusals = (job_spec.JobSpecError,)

    def act(self) -> dict[str, Any]:
        """Read, check, and return what the roles take."""
        args = self._args
        # task_vars are not templated yet, and json leaves no mark on text that would have it templated later.
        given = {key: value for key, value in self._vars.items() if key in job_spec.JOB_KEYS}
        keys = json.loads(json.dumps(given, default=str))
        # Not $PWD, which only a shell keeps right.
        folder = str(Path(args["folder"] or ".").absolute())
        for name, near in job_spec.slips(load_extra_vars(self._loader)):
            raise job_spec.JobSpecError(f"{name}: unknown key; did you mean {near}?")
        job = job_spec.read(keys, args["juid"] or _new_juid())
        return {"changed": False, "folder": folder, "juid": job["attempt"]["juid"], **_found(job, folder)}


def _new_juid() -> str:
    # Milliseconds instead of a counter: there is no core here that counts.
    now = datetime.datetime.now()
    return f"{now:%y-%m-%d-%H%M%S}{now.microsecond // 1000:03}"


def _found(job: dict[str, Any], folder: str) -> dict[str, Any]:
    """The job with the paths of this machine. Raises JobSpecError for what is not there."""
    code = job_spec.below(folder, job["code"]["path"], "code.path")
    if not Path(code).is_dir():
        raise job_spec.JobSpecError(f"code.path: expected a folder, {code} is none")
    sources = []
    for item in job["data"]:
        source = job_spec.below(folder, item["path"], f"data.{item['name']}.path")
        if not Path(source).is_dir():
            raise job_spec.JobSpecError(f"data.{item['name']}.path: expected a folder, {source} is none")
        sources.append({"name": item["name"], "path": source})
    environment = {key: value for key, value in job["environment"].items() if key != "file" and value is not None}
    if job["environment"]["file"]:
        environment["content"] = _content(folder, job["environment"]["file"])
    persist = [{"name": item["name"], "path": item["path"]} for item in job["attempt"]["persist"]]
    code_keys = {**job["code"], "path": code, "data": sources}
    return {**job, "code": code_keys, "persist": persist, "environment": environment}


def _content(folder: str, path: str) -> str:
    full = Path(job_spec.below(folder, path, "run.env_file"))
    try:
        if full.stat().st_size > _ENV_FILE_BYTES:
            raise job_spec.JobSpecError(f"run.env_file: {path} is larger than 4 MB; expected a text file")
        return full.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise job_spec.JobSpecError(f"run.env_file: {path}: {why}; expected a text file") from error
