"""Roles ``environment`` and ``install`` on a host with nothing but sshd and Python: what they say when they cannot."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostpool import Host

pytestmark = pytest.mark.hosts
_REPOSITORY = Path(__file__).resolve().parents[2]


def _play(
    host: Host, folder: Path, role: str, variables: dict[str, Any], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run one role on the host as its user; return exit code and output."""
    inventory = folder / "hosts.json"
    connection = {
        "ansible_host": host.address,
        "ansible_user": host.user,
        "ansible_ssh_private_key_file": str(host.key_file),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={host.known_hosts} -o IdentitiesOnly=yes",
    }
    inventory.write_text(json.dumps({"all": {"hosts": {"node": connection}}}))
    entry = {"role": f"monkey.runner.{role}", "vars": variables}
    play = folder / "play.json"
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": [entry]}]))
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    return subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory), str(play), *options],
        cwd=_REPOSITORY,
        env={**env, "ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _home(tmp_path: Path) -> str:
    return f"/home/researcher/.monkey-client/{tmp_path.name}"


def _envs(host: Host, home: str) -> list[str]:
    return host.ssh(["ls", "-A", f"{home}/envs"], check=False).stdout.split()


def test_a_requirement_that_does_not_exist_fails_with_pips_own_words(bare_host: Host, tmp_path: Path) -> None:
    home = _home(tmp_path)
    variables = {
        "environment_kind": "pip",
        "environment_content": "no-such-thing-{{ 1 + 1 }}\n",
        "environment_home": home,
    }
    done = _play(bare_host, tmp_path, "environment", variables)
    assert done.returncode == 2
    assert "pip could not install the requirements" in done.stdout
    assert "log_tail" in done.stdout
    assert [name.rsplit(".", 1)[-1] for name in _envs(bare_host, home)] == ["lock", "log"]


def test_check_mode_says_what_it_would_do_and_does_nothing(bare_host: Host, tmp_path: Path) -> None:
    home = _home(tmp_path)
    variables = {"environment_kind": "pip", "environment_content": "numpy\n", "environment_home": home}
    done = _play(bare_host, tmp_path, "environment", variables, "--check")
    assert done.returncode == 0
    assert "changed=1" in done.stdout
    assert bare_host.ssh(["test", "-e", home], check=False).returncode == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"environment_kind": "docker", "environment_image": "x"}, "neither docker nor podman is on this host"),
        (
            {"environment_kind": "conda", "environment_content": "x"},
            "there is no conda, mamba or micromamba on this host",
        ),
    ],
)
def test_a_host_without_the_tool_says_which(
    variables: dict[str, Any], said: str, bare_host: Host, tmp_path: Path
) -> None:
    done = _play(bare_host, tmp_path, "environment", {**variables, "environment_home": _home(tmp_path)})
    assert done.returncode == 2
    assert said in done.stdout


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("nvidia-docker", "nvidia-docker is not on this host and needs root to be installed"),
        ("pytorch", "pytorch: python3 on this host has no pip"),
        ("dokcer", "is unknown, the nearest is docker; expected conda, docker, cudaX.Y"),
        ("../conda", "is unknown, the nearest is conda"),
    ],
)
def test_what_cannot_be_installed_is_said_in_a_sentence(item: str, said: str, bare_host: Host, tmp_path: Path) -> None:
    done = _play(bare_host, tmp_path, "install", {"install_items": [item]})
    assert done.returncode == 2
    assert said in done.stdout + done.stderr


def test_check_mode_of_installations_goes_through_and_changes_nothing(ssh_hosts: list[Host], tmp_path: Path) -> None:
    host = dataclasses.replace(ssh_hosts[0], user="root")  # a machine that Monkey made: root is there
    look = ["find", "/etc", "/usr/share/keyrings", "/usr/local", "/root", "-not", "-path", "/root/.ansible*", "-ls"]
    host.ssh(["mkdir", "-p", "/root/.ansible"])
    before = host.ssh(look).stdout
    done = _play(
        host, tmp_path, "install", {"install_items": ["conda", "cuda10.2", "docker", "nvidia-docker"]}, "--check"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for task in ("Run the installer", "Name the repository", "Say what would be installed"):
        assert re.search(rf"TASK \[monkey.runner.install : {task}\] \**\nchanged: ", done.stdout), task
    assert host.ssh(look).stdout == before
