"""The collection as others get it: built, installed elsewhere, and used with nothing of this checkout in reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

_REPOSITORY = Path(__file__).resolve().parents[2]
_RUNNER = _REPOSITORY / "collections/ansible_collections/monkey/runner"
_BIN = Path(sys.executable).parent


def _run(*words: str | Path, cwd: Path, env: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def _env(home: Path) -> dict[str, str]:
    """A user who has Ansible and none of our settings; ansible.cfg is looked for in the working folder too."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MONKEY_", "PYTHON"))}
    # The driver, installed beside Ansible here, brings the collection on Python's path.
    keep["ANSIBLE_COLLECTIONS_SCAN_SYS_PATH"] = "false"
    return {**keep, "HOME": str(home), "PATH": f"{_BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    _run("ansible-galaxy", "collection", "build", "--output-path", folder, _RUNNER, cwd=folder, env=_env(folder))
    (made,) = folder.glob("monkey-runner-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def user(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a user who installed the tarball, with no network."""
    home = tmp_path_factory.mktemp("user")
    said = _run("ansible-galaxy", "collection", "install", "--offline", built, cwd=home, env=_env(home))
    assert "monkey.runner:" in said
    assert (home / ".ansible/collections/ansible_collections/monkey/runner/MANIFEST.json").is_file()
    return home


def test_the_tarball_holds_what_is_used_and_nothing_else(built: Path) -> None:
    with tarfile.open(built) as archive:
        names = set(archive.getnames())
    version = yaml.safe_load((_RUNNER / "galaxy.yml").read_text())["version"]
    assert built.name == f"monkey-runner-{version}.tar.gz"
    wanted = {"README.md", "CHANGELOG.md", "meta/runtime.yml", "playbooks/run_job.yml", "roles/client/README.md"}
    assert wanted <= names
    assert [name for name in names if name.startswith("tests") or "__pycache__" in name or "cache" in name] == []


def test_the_changelog_tells_of_this_version() -> None:
    version = yaml.safe_load((_RUNNER / "galaxy.yml").read_text())["version"]
    releases = yaml.safe_load((_RUNNER / "changelogs/changelog.yaml").read_text())["releases"]
    assert version in releases
    told = {module["name"] for release in releases.values() for module in release["modules"]}
    pending = [path for path in (_RUNNER / "changelogs/fragments").glob("*.y*ml") if path.read_text().strip()]
    modules = {path.stem for path in (_RUNNER / "plugins/modules").glob("*.py")}
    assert modules <= told or pending, f"not in the changelog: {modules - told}"


def test_action_group_holds_every_module_that_takes_a_home() -> None:
    groups = yaml.safe_load((_RUNNER / "meta/runtime.yml").read_text())["action_groups"]
    takers = {path.stem for path in (_RUNNER / "plugins/modules").glob("*.py") if '"home":' in path.read_text()}
    assert set(groups["client"]) == takers


def test_a_job_runs_where_nothing_of_the_checkout_is(user: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data/digits").write_text("7\n")
    (project / "weights.ckpt").write_text("large\n")
    # As the original Monkey's examples have it: keys left empty, a folder to keep as a text.
    (project / "job.yml").write_text(
        "name: elsewhere\nrun:\n  env_type: none\n  env_file:\ninstall:\ncode:\n  path: .\n"
        "  ignore:\n    - data\n    - '*.ckpt'\npersist:\n  - output\n"
        "data:\n  - name: digits\n    type: copy\n    path: data\n    compression: gztar\nproviders:\n"
    )
    (project / "job.sh").write_text('ls; cat data/digits; printf "%s|" "$@"; echo kept > output/made\n')
    inventory: dict[str, Any] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "monkey_client_home": str(tmp_path / "client"),
    }
    (project / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"here": inventory}}}))
    words = ["sh", "job.sh", "{{ 1 + 1 }}", "$(id)", "two  words", "-x"]
    playbook = ["ansible-playbook", "-i", "hosts.yml", "monkey.runner.run_job"]
    run = [*playbook, "-e", "@job.yml", "-e", json.dumps({"command": words})]

    foretold = _run(*run, "--check", "--diff", cwd=project, env=_env(user))
    assert "+ job.sh (" in foretold
    assert '"name": "elsewhere"' in foretold
    assert not (tmp_path / "client").exists()
    assert not (project / ".monkey").exists()
    assert not (project / "monkey-output").exists()

    said = _run(*run, "-e", "monkey_remove_client=true", cwd=project, env=_env(user))
    assert f"included: {user}/.ansible/collections/ansible_collections/monkey/runner/roles/code" in said
    assert str(_RUNNER) not in said
    (log,) = (project / "monkey-output/here").glob("*/log")
    assert log.read_text() == "data\nhosts.yml\njob.sh\njob.yml\noutput\n7\n{{ 1 + 1 }}|$(id)|two  words|-x|"
    assert (log.parent / "output/made").read_text() == "kept\n"
    assert not (tmp_path / "client").exists()
