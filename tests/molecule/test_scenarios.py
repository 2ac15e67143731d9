"""Runs every Molecule scenario (``molecule/<role>/``) in full, on test hosts of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hostpool import HostPool

_REPOSITORY = Path(__file__).resolve().parents[2]
_SCENARIOS = sorted(path.parent.name for path in (_REPOSITORY / "molecule").glob("*/molecule.yml"))
_TIME_LIMIT_S = 600

pytestmark = pytest.mark.hosts


@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_scenario(scenario: str, host_pool: HostPool, tmp_path: Path) -> None:
    folder = tmp_path / "molecule"
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_", "MONKEY_"))}
    env.update(
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        MOLECULE_EPHEMERAL_DIRECTORY=str(folder),
        MONKEY_HOSTS_OWNER=str(os.getpid()),  # should this session be killed, the next one removes the hosts
        ANSIBLE_HOME=str(tmp_path / "ansible"),
        ANSIBLE_NOCOLOR="1",
        NO_COLOR="1",
    )
    command = ["molecule", "--base-config", str(_REPOSITORY / ".config/molecule/config.yml"), "test", "-s", scenario]
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=_REPOSITORY,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=_TIME_LIMIT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            _destroy(folder / "hosts.json")
        output.seek(0)
        said = output.read()
    assert code == 0, (
        f"molecule test -s {scenario}: {'too slow' if code is None else f'exit code {code}'}\n{said[-8000:]}"
    )
    assert "idempotence: Executed: Successful" in said, said[-8000:]
    assert "verify: Executed: Successful" in said, said[-8000:]


def _destroy(state: Path) -> None:
    """Molecule removes its hosts, unless it was killed."""
    hosts_py = _REPOSITORY / "tests/hosts/hosts.py"
    subprocess.run([sys.executable, hosts_py, "destroy", "--state", state], check=True, timeout=60)
