"""The engine: runs a playbook of the collection for a wave. The only module that imports ansible-runner.

A run has a folder of its own below ``MONKEY_HOME/runs`` that holds the wave file (what users wrote travels in it and
is looked up by the playbook, so none of it is ever a template or an argument) and ansible-runner's artifacts. What
could hold a secret (the environment of the call) is wiped when the run ends, and old runs are removed.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.trees as _in_collection
import ansible_runner

# …/ansible_collections/monkey/runner/plugins/module_utils/monkeyfs/trees.py -> the folder of ansible_collections
COLLECTIONS_PATH = Path(_in_collection.__file__).resolve().parents[6]
KEPT_RUNS = 50
_FORKS = 50

OnTask = Callable[[str, str], None]


@dataclass
class HostResult:
    """What a run did on one host.

    Attributes:
        roles: names of the roles whose tasks began there, in order (``client``, ``code``, ``launch`` …).
        failed: the failing task's result (``msg``, and what the module added, such as ``log_tail``), or None.
        failed_role: the role of that task, or "".
        unreachable: the transport's message, or None. Unreachable is not failed.
        results: result of each task by ``role`` or ``role/task name``; the last one of a role wins its plain name.
    """

    roles: list[str] = field(default_factory=list)
    failed: dict[str, Any] | None = None
    failed_role: str = ""
    unreachable: str | None = None
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True when every task on the host went well."""
        return self.failed is None and self.unreachable is None


@dataclass
class RunResult:
    """A finished run: ``status`` as ansible-runner says it, ``rc`` of ansible-playbook, hosts by inventory name.

    ``cancelled``: it was ended by us, so that what did not go well says nothing about hosts or jobs.
    """

    ident: str
    status: str
    rc: int
    hosts: dict[str, HostResult]
    output: str
    cancelled: bool = False

    def host(self, name: str) -> HostResult:
        """Result of one host; a host the play never reached (a broken play, a cancelled run) counts as failed."""
        found = self.hosts.get(name)
        if found is None or (found.ok and self.status != "successful" and not found.results):
            return HostResult(failed={"msg": f"the playbook did not get to this host: {_last_line(self.output)}"})
        return found


class Engine:
    """Runs playbooks by name, each in a folder of its own.

    Args:
        runs_dir: folder for the runs.
        collections_path: folder that holds ``ansible_collections`` with the collection.
    """

    def __init__(self, runs_dir: Path, collections_path: Path = COLLECTIONS_PATH) -> None:
        self.runs_dir = runs_dir
        self.collections_path = collections_path
        self._cancelled: set[str] = set()
        self._running: set[str] = set()

    def new_ident(self, playbook: str) -> str:
        """A name for a run, sorted by time of use: its folder's name too."""
        return f"{playbook}-{uuid.uuid4().hex[:12]}"

    def run(
        self,
        playbook: str,
        inventory: Path,
        *,
        ident: str | None = None,
        limit: list[str] | None = None,
        wave: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        on_task: OnTask | None = None,
        check: bool = False,
    ) -> RunResult:
        """Run ``monkey.runner.<playbook>`` to its end; blocks, so call it in a thread.

        Args:
            playbook: name inside the collection.
            inventory: inventory file of the provider.
            limit: inventory names to run on; None for all.
            wave: content of the wave file, handed over as ``monkey_wave_file``.
            variables: further extra variables: paths and numbers of ours, never what a user wrote.
            on_task: called with (host, role) when a task begins there.
            check: run in check mode.

        Returns:
            RunResult, whether or not the playbook went well.
        """
        ident = ident or self.new_ident(playbook)
        folder = self.runs_dir / ident
        folder.mkdir(mode=0o700, parents=True)
        extra: dict[str, Any] = dict(variables or {})
        if wave is not None:
            wave_file = folder / "wave.json"
            wave_file.touch(mode=0o600)
            wave_file.write_text(json.dumps(wave), encoding="utf-8")
            extra["monkey_wave_file"] = str(wave_file)
        extra["monkey_progress_file"] = str(folder / "progress.jsonl")
        collector = _Collector(on_task)
        self._running.add(ident)
        try:
            runner = ansible_runner.run(
                private_data_dir=str(folder),
                ident="run",
                playbook=f"monkey.runner.{playbook}",
                inventory=str(inventory),
                limit=",".join(limit) if limit else None,
                extravars=extra,
                cmdline="--check" if check else None,
                forks=_FORKS,
                envvars=self._environment(folder),
                settings={"pexpect_timeout": 1, "pexpect_use_poll": True, "suppress_ansible_output": True},
                event_handler=collector.event,
                cancel_callback=lambda: self._end_if_cancelled(ident, folder),
                quiet=True,
            )
            output = _read(folder / "artifacts" / "run" / "stdout")
            hosts, cancelled = collector.hosts, ident in self._cancelled
            result = RunResult(ident, str(runner.status), int(runner.rc or 0), hosts, output, cancelled)
        finally:
            self._running.discard(ident)
            self._cancelled.discard(ident)
            self._wipe(folder)
        return result

    def cancel(self, ident: str) -> None:
        """End a run: nothing of its playbook goes on. It takes up to a second."""
        self._cancelled.add(ident)

    def cancel_all(self) -> None:
        """End every run that is under way."""
        self._cancelled.update(self._running)

    def end_leftovers(self, wait_s: float = 10.0) -> None:
        """End playbooks that a killed core left running, before anything else is dispatched."""
        until = time.monotonic() + wait_s
        while pids := _processes_with(f"{self.runs_dir}/", of=None):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM if time.monotonic() < until else signal.SIGKILL)
            if time.monotonic() > until + wait_s:
                return
            time.sleep(0.1)

    def _environment(self, folder: Path) -> dict[str, str]:
        return {
            **self._control_path(),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections_path),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_PYTHON_INTERPRETER": "auto_silent",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_DEPRECATION_WARNINGS": "False",
            # Module arguments hold what users wrote: they do not belong into a host's journal.
            "ANSIBLE_NO_TARGET_SYSLOG": "True",
            "ANSIBLE_TIMEOUT": "15",
            "ANSIBLE_NOCOWS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    @cache  # noqa: B019 - one engine lives as long as its process
    def _control_path(self) -> dict[str, str]:
        """Where ssh keeps the sockets of its connections: Ansible's own place, unless its path is too long for one."""
        usual = Path.home() / ".ansible" / "cp"
        # unix(7): 108 bytes with the closing zero; ssh puts a name of ten and a suffix of 17 characters behind it.
        if len(os.fsencode(usual)) + 1 + 10 + 17 < 108:
            return {}
        folder = tempfile.mkdtemp(prefix="mk-", dir="/tmp")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return {"ANSIBLE_SSH_CONTROL_PATH_DIR": folder}

    def _end_if_cancelled(self, ident: str, folder: Path) -> bool:
        # ansible-runner's own cancel leaves the running task alive, as workers have sessions of their own (ansible PR
        # 82770); SIGTERM to ansible-playbook itself ends them all. So never answer True, end the playbook instead.
        if ident in self._cancelled:
            for pid in _processes_with(str(folder), of=os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        return False

    def _wipe(self, folder: Path) -> None:
        # The artifacts hold the whole environment of the call in the clear.
        shutil.rmtree(folder / "env", ignore_errors=True)
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        for name in ("command", "fact_cache"):
            with contextlib.suppress(OSError):
                (folder / "artifacts" / "run" / name).unlink()
        runs = sorted((p for p in self.runs_dir.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
        for old in runs[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)


class _Collector:
    """Turns ansible-runner's events into what the core wants to know."""

    def __init__(self, on_task: OnTask | None) -> None:
        self.hosts: dict[str, HostResult] = {}
        self._on_task = on_task

    def event(self, event: dict[str, Any]) -> bool:
        """Take one event; False tells ansible-runner not to keep its file (results hold what users wrote)."""
        kind = str(event.get("event", ""))
        data = event.get("event_data") or {}
        name = data.get("host")
        if not name or not kind.startswith("runner_on_"):
            return False
        host = self.hosts.setdefault(name, HostResult())
        role = str(data.get("role") or "").rpartition(".")[2]
        if kind == "runner_on_start":
            if role and role not in host.roles:
                host.roles.append(role)
                if self._on_task:
                    self._on_task(name, role)
            return False
        result = data.get("res") or {}
        if kind == "runner_on_ok":
            host.results[role] = result
            host.results[f"{role}/{data.get('task', '')}"] = result
        elif kind == "runner_on_failed" and not data.get("ignore_errors"):
            host.failed, host.failed_role = result, role
        elif kind == "runner_on_unreachable":
            host.unreachable = _plain(str(result.get("msg", "unreachable")))
        return False


def _processes_with(text: str, of: int | None) -> list[int]:
    """Pids of this user's ansible-playbooks whose command line names ``text``; with ``of``, only its children."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            ours = entry.stat().st_uid == os.getuid() and of in (None, parent)
            words = (entry / "cmdline").read_bytes() if ours else b""
            if b"ansible-playbook" in words and text.encode() in words:
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in _plain(text).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "[ERROR]"))]
    return (errors or lines or ["no output"])[-1]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
