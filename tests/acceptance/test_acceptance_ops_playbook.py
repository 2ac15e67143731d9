"""An ops person runs a job with ansible-playbook alone: no core, no driver, an empty MONKEY_HOME."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def play(tmp_path: Path, make_monkey_home: Any, bare_host: Any) -> Any:
    """Runs playbooks/run_job.yml in a folder on the bare host."""
    home = make_monkey_home("none")
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        f"all:\n  hosts:\n    bench:\n      ansible_host: {bare_host.address}\n      ansible_user: {bare_host.user}\n"
        f"      ansible_port: {bare_host.port}\n      ansible_ssh_private_key_file: {bare_host.key_file}\n"
        f"      ansible_ssh_common_args: -o UserKnownHostsFile={bare_host.known_hosts} -o StrictHostKeyChecking=yes\n"
        "      ansible_python_interpreter: python3\n      monkey_client_home: ~/ops\n"
    )
    home.path.mkdir()
    # A socket's path has 108 bytes at most, and pytest's folders are deep.
    sockets = tempfile.mkdtemp(prefix="mk-", dir="/tmp")
    ansible = str(Path(sys.executable).parent / "ansible-playbook")

    def run(folder: Path, *words: str, playbook: str = "run_job.yml") -> subprocess.CompletedProcess[str]:
        line = [ansible, "-i", str(inventory), str(REPOSITORY / "playbooks" / playbook), *words]
        env = {**home.env, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "PWD": str(folder)}
        env["ANSIBLE_SSH_CONTROL_PATH_DIR"] = sockets
        done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False)
        assert list(home.path.iterdir()) == [] and home.core_pid() is None
        return done

    yield run
    if (bare_host.root / "home" / bare_host.user / "ops").exists():
        done = run(tmp_path, playbook="remove_client.yml")
        assert done.returncode == 0, done.stdout
    assert not (bare_host.root / "home" / bare_host.user / "ops").exists()
    assert not [line for _, line in bare_host.processes(bare_host.user) if "monkey" in line]
    shutil.rmtree(sockets, ignore_errors=True)


def test_the_example_with_no_core(play: Any, example: Path, bare_host: Any) -> None:
    command = '{"command": ["python3", "mnist.py", "--n-epochs", "1", "--hidden", "8"], "monkey_juid": "by-hand"}'
    done = play(example, "-e", "@job.yml", "-e", command, "-e", "monkey_remove_client=true")
    assert done.returncode == 0, done.stdout + done.stderr
    place = example / "monkey-output" / "bench" / "by-hand"
    assert (place / "output" / "checkpoint.npz").stat().st_size > 1000
    assert (place / "output" / "losses.csv").read_text().startswith("epoch,loss,accuracy\n1,")
    log = next(path for path in place.iterdir() if path.is_file())
    assert "epoch 1/1" in log.read_text()
    assert not (bare_host.root / "home" / bare_host.user / "ops").exists()


def test_a_command_that_fails_is_said_in_a_sentence(play: Any, project: Any, bare_host: Any) -> None:
    folder = project({"a.sh": "echo almost; echo {{ no_template }} >&2; exit 7\n"})
    done = play(folder, "-e", '{"command": ["sh", "a.sh"]}', "-e", "monkey_juid=fails")
    assert done.returncode == 2, done.stdout
    said = " ".join(done.stdout.split())
    assert "job fails on bench: FAILED (exit code 7)" in said
    assert "almost" in said and "{{ no_template }}" in said
    assert os.path.isdir(folder / "monkey-output" / "bench" / "fails")
    attempts = bare_host.root / "home" / bare_host.user / "ops" / "attempts"
    assert [one.name for one in attempts.iterdir() if one.is_dir() and not (one / "removed").exists()] == []
