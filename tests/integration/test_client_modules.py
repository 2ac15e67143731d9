"""The modules client, launch and attempt, packed and run by real Ansible on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client import bundle, control

REPOSITORY = Path(__file__).resolve().parents[2]


class Modules:
    """Runs a playbook of tasks on localhost; the results by task name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.home = str(folder / "client")
        self._count = 0

    def run(self, *tasks: dict[str, Any], check: bool = False, fails: bool = False) -> list[dict[str, Any]]:
        self._count += 1
        out = self._folder / f"results{self._count}"
        play: list[dict[str, Any]] = []
        for number, task in enumerate(tasks):
            with_home = {key: dict(value, home=self.home) for key, value in task.items()}
            play.append({**with_home, "register": f"r{number}", "ignore_errors": fails})
        results = "[" + ",".join(f"r{number}" for number in range(len(tasks))) + "]"
        play.append(
            {
                "ansible.builtin.copy": {
                    "dest": str(out),
                    "content": "{{ " + results + " | to_json }}",
                    "mode": "0600",
                },
                "check_mode": False,
            }
        )
        playbook = self._folder / f"play{self._count}.yml"
        playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": play}]))
        env = dict(os.environ, ANSIBLE_COLLECTIONS_PATH=str(REPOSITORY / "collections"), ANSIBLE_LOCALHOST_WARNING="0")
        command = [str(Path(sys.executable).parent / "ansible-playbook"), str(playbook)]
        done = subprocess.run(
            [*command, "--check"] if check else command,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found


@pytest.fixture
def modules(tmp_path: Path) -> Any:
    made = Modules(tmp_path)
    yield made
    if os.path.isdir(made.home):
        made.run({"monkey.runner.client": {"state": "absent"}})


def who(juid: str) -> dict[str, Any]:
    return {"juid": juid, "attempt": 1}


def test_client_is_installed_once_and_leaves_nothing(modules: Modules) -> None:
    (foretold,) = modules.run({"monkey.runner.client": {"max_jobs": 3}}, check=True)
    assert foretold["changed"] and not os.path.exists(modules.home)
    first, second, slots, present = modules.run(
        {"monkey.runner.client": {"max_jobs": 3}},
        {"monkey.runner.client": {"max_jobs": 3}},
        {"monkey.runner.client": {"max_jobs": 4}},
        {"monkey.runner.client": {"state": "present"}},
    )
    assert [item["changed"] for item in (first, second, slots, present)] == [True, False, True, False]
    # Packed by AnsiballZ or read from the checkout: the same bytes, so the core knows the version without asking.
    assert first["version"] == bundle.build()[1]
    assert first["facts"]["cpus"] >= 1 and first["facts"]["memory_mb"] > 0 and first["facts"]["hostname"]
    assert os.stat(modules.home).st_mode & 0o777 == 0o700
    running = control.running(modules.home)
    assert running and running["version"] == first["version"]
    stopped, again = modules.run(
        {"monkey.runner.client": {"state": "stopped"}}, {"monkey.runner.client": {"state": "stopped"}}
    )
    assert [stopped["changed"], again["changed"]] == [True, False]
    assert control.running(modules.home) is None
    gone, still = modules.run(
        {"monkey.runner.client": {"state": "absent"}}, {"monkey.runner.client": {"state": "absent"}}
    )
    assert [gone["changed"], still["changed"]] == [True, False]
    assert not os.path.exists(modules.home)


def test_launch_follow_pause_cancel_and_remove(modules: Modules) -> None:
    arguments = ["a b", "'\"", "$(id)", "{{ 1 + 1 }}", "{% raw %}", "-n", "🐒", "line\nbreak", "x" * 100_000]
    wave = Path(modules.home).parent / "wave.json"
    quick = {**who("quick"), "command": ["printf", "%s|", *arguments]}
    wave.write_text(json.dumps([quick, {**who("slow"), "command": ["sleep", "1000"], "grace_s": 0.2}]))
    launch = {"monkey.runner.launch": {"attempts": f"{{{{ lookup('file', '{wave}') | from_json }}}}"}}
    _installed, first, again, finished, paused, resumed, cancelled, removed, unknown = modules.run(
        {"monkey.runner.client": {}},
        launch,
        launch,
        {"monkey.runner.attempt": {"attempts": [who("quick")]}},
        {"monkey.runner.attempt": {"attempts": [who("slow")], "state": "paused"}},
        {"monkey.runner.attempt": {"attempts": [who("slow")], "state": "running"}},
        {"monkey.runner.attempt": {"attempts": [who("slow")], "state": "cancelled"}},
        {"monkey.runner.attempt": {"attempts": [who("slow")], "state": "absent"}},
        {"monkey.runner.attempt": {"attempts": [who("slow"), who("never")], "wait_s": 0}},
    )
    assert (first["changed"], first["accepted"]) == (True, ["quick.1", "slow.1"])
    assert (again["changed"], again["known"]) == (False, ["quick.1", "slow.1"])
    told = finished["attempts"][0]
    assert (finished["changed"], finished["reached"], told["state"], told["exit_code"]) == (False, True, "SUCCEEDED", 0)
    log = Path(modules.home, "attempts", "quick.1", "log").read_text()
    assert log.split("|")[:-1] == arguments
    assert [paused["attempts"][0]["state"], resumed["attempts"][0]["state"]] == ["PAUSED", "RUNNING"]
    assert cancelled["changed"] and cancelled["attempts"][0]["reason"] == "CANCELLED"
    assert removed["changed"] and removed["attempts"][0]["state"] == "REMOVED"
    assert [item["state"] for item in unknown["attempts"]] == ["REMOVED", "UNKNOWN"]


def test_absent_ends_what_runs_and_spares_foreign_files(modules: Modules) -> None:
    sleeper = {**who("s"), "command": ["sleep", "1000"], "grace_s": 0.2}
    modules.run({"monkey.runner.client": {}}, {"monkey.runner.launch": {"attempts": [sleeper]}})
    thesis = Path(modules.home, "thesis.tex")
    thesis.write_text("mine")
    (refused,) = modules.run({"monkey.runner.client": {"state": "absent"}}, fails=True)
    assert refused["failed"] and "thesis.tex" in refused["msg"]
    thesis.unlink()
    pid = json.loads(Path(modules.home, "attempts", "s.1", "command.json").read_text())["pid"]
    (gone,) = modules.run({"monkey.runner.client": {"state": "absent"}})
    assert gone["changed"] and not os.path.exists(modules.home)
    assert not os.path.exists(f"/proc/{pid}")


def test_bad_input_is_refused_with_its_field_and_changes_nothing(modules: Modules) -> None:
    bad = {**who("x"), "command": ["true"], "time_limit_s": -1}
    missing, field = modules.run(
        {"monkey.runner.launch": {"attempts": [{**who("x"), "command": ["true"]}]}},
        {"monkey.runner.launch": {"attempts": [bad]}},
        fails=True,
    )
    assert "install it first" in missing["msg"]
    assert "x.1: time_limit_s" in field["msg"]
    assert not os.path.exists(modules.home)
