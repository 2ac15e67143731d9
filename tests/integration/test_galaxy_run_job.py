"""playbooks/run_job.yml as ops use it: no core, no driver, an empty MONKEY_HOME."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostpool import Host

_REPOSITORY = Path(__file__).resolve().parents[2]
_BIN = Path(sys.executable).parent


class _Ops:
    """A folder with code, an inventory of this machine, and ansible-playbook."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "project"
        self.client = top / "client"
        self.folder.mkdir()
        self.hosts = {
            "here": {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "monkey_client_home": str(self.client),
            }
        }
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MONKEY_"))}
        self.env = {
            **keep,
            "HOME": str(top),
            "MONKEY_HOME": str(top / "monkey-home"),
            "ANSIBLE_CONFIG": str(_REPOSITORY / "ansible.cfg"),
            "PATH": f"{_BIN}:{os.environ['PATH']}",
        }

    def play(self, name: str, *options: str, code: int = 0, **variables: Any) -> str:
        (self.folder.parent / "hosts.json").write_text(json.dumps({"all": {"hosts": self.hosts}}))
        playbook = _REPOSITORY / "playbooks" / f"{name}.yml"
        words = ["ansible-playbook", "-i", str(self.folder.parent / "hosts.json"), str(playbook)]
        done = subprocess.run(
            [*words, "-e", json.dumps(variables), *options],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def attempts(self) -> list[str]:
        """Attempts that still have a work folder on the host."""
        return sorted(path.parent.name for path in self.client.glob("attempts/*/work"))


@pytest.fixture
def ops(tmp_path: Path) -> Iterator[_Ops]:
    made = _Ops(tmp_path)
    yield made
    if made.client.exists():
        made.play("remove_client")
        assert not made.client.exists()


def test_a_job_that_fails_fails_the_play_brings_its_log_and_is_cleared_away(ops: _Ops) -> None:
    said = ops.play(
        "run_job", code=2, command="sh -c 'echo made > output/a; echo the reason; exit 3'", persist=["output"]
    )
    assert "FAILED (exit code 3)" in said
    assert "its last lines: the reason" in said
    (log,) = (ops.folder / "monkey-output/here").glob("*/log")
    assert log.read_text() == "the reason\n"
    assert (log.parent / "output/a").read_text() == "made\n"
    assert ops.attempts() == []
    assert not Path(ops.env["MONKEY_HOME"]).exists()


def test_waiting_ends_but_not_the_job_and_the_same_command_goes_on_following_it(ops: _Ops) -> None:
    job: dict[str, Any] = {
        "command": ["sh", "-c", "echo began >> $0; until [ -e $0.go ]; do sleep 0.05; done", f"{ops.client}-count"]
    }
    said = ops.play("run_job", code=2, monkey_juid="long-1", monkey_wait_s=0.5, monkey_remove_client=True, **job)
    assert "RUNNING (run this again with -e monkey_juid=long-1 to go on)" in said
    assert ops.attempts() == ["long-1.1"]
    Path(f"{ops.client}-count.go").touch()
    said = ops.play("run_job", monkey_juid="long-1", **job)
    assert "SUCCEEDED (exit code 0)" in said
    assert Path(f"{ops.client}-count").read_text() == "began\n"
    assert ops.attempts() == []


def test_values_of_variables_are_never_shown(ops: _Ops) -> None:
    said = ops.play("run_job", "-vvv", "--check", "--diff", command="true", env={"TOKEN": "hidden-value"})
    shown = said.split("TASK [monkey.runner.launch : Hand over", 1)[1]
    assert '"TOKEN": "…"' in shown
    assert "hidden-value" not in shown
    assert not ops.client.exists()


def test_what_cannot_be_used_is_named_once_and_nothing_is_touched(ops: _Ops) -> None:
    said = ops.play("run_job", code=2, command="true", persits=["output"])
    assert "persits: unknown key; did you mean persist?" in said
    said = ops.play("run_job", code=2, command="true", data=[{"name": "d", "path": "nowhere"}])
    assert "data.d.path: " in said and "has no 'nowhere'" in said
    assert not ops.client.exists()
    assert list(ops.folder.iterdir()) == []


def test_hosts_are_checked_and_left_as_they_were(ops: _Ops) -> None:
    said = ops.play("check_hosts")
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}." in said
    assert not ops.client.exists()


def test_results_of_running_attempts_are_collected_and_ended_ones_cleared(ops: _Ops) -> None:
    ops.play(
        "run_job",
        code=2,
        monkey_juid="runs",
        monkey_wait_s=0,
        command="sh -c 'echo 1 > output/a; sleep 1000'",
        persist=["output"],
    )
    attempt = {"juid": "runs", "attempt": 1}
    persist = [{"name": "output", "path": "output"}]
    ops.hosts["other"] = dict(ops.hosts["here"])
    wave = ops.folder.parent / "wave.json"
    wave.write_text(
        json.dumps({"hosts": {"here": {"collect": [{**attempt, "persist": persist}], "teardown": [attempt]}}})
    )
    dest = ops.folder.parent / "results"
    variables = {"monkey_wave_file": str(wave), "monkey_monkeyfs": str(dest / "fs"), "monkey_dest": str(dest)}
    ops.play("collect_jobs", **variables)
    assert (dest / "here/runs/output/a").read_text() == "1\n"
    assert not (dest / "other").exists()
    assert ops.attempts() == []


@pytest.mark.hosts
def test_each_host_runs_it_and_has_a_result_of_its_own(ops: _Ops, ssh_hosts: list[Host], bare_host: Host) -> None:
    ops.hosts = {
        host.name: {
            "ansible_host": host.address,
            "ansible_user": host.user,
            "ansible_ssh_private_key_file": str(host.key_file),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={host.known_hosts} -o IdentitiesOnly=yes",
            "monkey_client_home": "~/.monkey-client/run job",
        }
        for host in (ssh_hosts[0], bare_host)
    }
    (ops.folder / "where.sh").write_text("uname -n > output/name\n")
    ops.play("run_job", command="sh where.sh", persist=["output"], monkey_remove_client=True)
    for host in (ssh_hosts[0], bare_host):
        (name,) = (ops.folder / "monkey-output" / host.name).glob("*/output/name")
        assert name.read_text() == host.ssh(["uname", "-n"]).stdout
        assert host.ssh(["test", "-e", ".monkey-client/run job"], check=False).returncode == 1
