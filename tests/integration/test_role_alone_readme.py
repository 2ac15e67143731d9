"""The playbook in each role's README runs as it stands: text of the page, collection, hosts, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_COLLECTIONS = _REPOSITORY / "collections"
_ROLES = _COLLECTIONS / "ansible_collections/monkey/runner/roles"


class _Place:
    """A user's folder with some code, and a home of its own for the client."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "project"
        self.home = top / "home"
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "train.py").write_text("print('training')\n")
        (self.folder / "data/digits.csv").write_text("1,2,3\n")
        (self.folder / "requirements.txt").write_text("# nothing but Python itself\n")
        (self.folder / "hosts.yml").write_text(
            "all: {hosts: {here: {ansible_connection: local,"
            " ansible_python_interpreter: '{{ ansible_playbook_python }}'}}}\n"
        )
        self.home.mkdir()

    @property
    def client(self) -> Path:
        return self.home / ".monkey-client/default"

    def run(self, role: str) -> str:
        """Run the example of a role's README as it stands, with the command line that stands above it."""
        page = (_ROLES / role / "README.md").read_text(encoding="utf-8")
        (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        (self.folder / "example.yml").write_text(text)
        line = re.search(r"`(ansible-playbook [^`]*)`", page)
        assert line, "the README does not say how to run its example"
        env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MONKEY_"))}
        env.update(
            HOME=str(self.home),
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            ANSIBLE_COLLECTIONS_PATH=str(_COLLECTIONS),
        )
        done = subprocess.run(
            line[1].split(), cwd=self.folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[_Place]:
    made = _Place(tmp_path)
    yield made
    if made.client.exists():
        made.run("teardown")
        assert not made.client.exists()


def test_client(place: _Place) -> None:
    said = place.run("client")
    assert "disk_free_mb" in said
    assert (place.client / "client.json").exists()
    assert "changed=0" in place.run("client")


def test_code(place: _Place) -> None:
    place.run("code")
    sent = [path.read_text() for path in (place.client / "store/blobs").glob("*/*")]
    assert "print('training')\n" in sent
    assert "1,2,3\n" in sent


def test_environment(place: _Place) -> None:
    """Also that module monkey.runner.environment keeps what it makes below the client's folder."""
    place.run("environment")
    (python,) = (place.client / "envs").glob("pip-*/bin/python")
    outside = [python, "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)"]
    assert subprocess.run(outside, check=False).returncode == 0


def test_launch_and_collect(place: _Place) -> None:
    name = os.uname().nodename
    said = place.run("launch")
    assert f"SUCCEEDED: {name}" in said, said
    assert "changed=0" in place.run("launch")
    place.run("collect")
    results = place.folder / "results/here/hello-001"
    assert (results / "output/name").read_text() == f"{name}\n"
    assert (results / "log").read_text() == f"{name}\n"


def test_teardown(place: _Place) -> None:
    place.run("launch")
    place.run("teardown")
    assert not place.client.exists()
