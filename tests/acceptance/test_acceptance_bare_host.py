"""An unprivileged user on a machine that has nothing but sshd and Python: no root, no pip, no systemd."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.hosts


def test_a_job_on_a_host_that_has_nothing_but_sshd_and_python(lab: Any, project: Any, bare_host: Any) -> None:
    for tool in ("pip", "pip3", "sudo", "rsync", "systemctl"):
        assert bare_host.ssh(["sh", "-c", f"command -v {tool}"], check=False).returncode != 0
    machine = f"{bare_host.user}@{bare_host.address}:{bare_host.port}"
    add = ("provider", "add", "bare", "--type", "ssh", "--host", machine, "--key", str(bare_host.key_file), "--noinput")
    lab.monkey(*add)
    before = {line for _, line in bare_host.processes("root")}
    folder = project(
        {
            "plain.py": "import os, sys\nprint(os.getuid() != 0, sys.prefix == sys.base_prefix)\n"
            "open('out/made', 'w').write('here')\n",
            "needs.py": "import numpy, sys\nprint(int(numpy.arange(4).sum()), sys.prefix != sys.base_prefix)\n",
            "requirements.txt": "numpy\n",
            "plain.yml": "persist: [out]\n",
            "pip.yml": "run: {env_type: pip, env_file: requirements.txt}\n",
        }
    )
    juids = [
        lab.start(folder, "-p", "bare", "-jf", "plain.yml", "python3", "plain.py"),
        lab.start(folder, "-p", "bare", "-jf", "pip.yml", "--cpus", "0.5", "python3", "needs.py"),
        lab.start(folder, "-p", "bare", "-jf", "pip.yml", "--cpus", "0.5", "python3", "needs.py"),
    ]
    jobs = [lab.end(juid, timeout_s=150) for juid in juids]
    assert [job["state"] for job in jobs] == ["SUCCEEDED"] * 3, [job["message"] for job in jobs]
    assert lab.logs(juids[0]) == "True True\n"
    assert lab.logs(juids[1]) == lab.logs(juids[2]) == "6 True\n"
    lab.monkey("output", juids[0], cwd=folder)
    assert (folder / "monkey-output" / juids[0] / "out" / "made").read_text() == "here"

    # One environment for both, built once, and nothing outside of the client's folder.
    home = lab.client_home(bare_host)
    assert len([one for one in (home / "envs").iterdir() if one.name.startswith("pip-") and one.is_dir()]) == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert {line for _, line in bare_host.processes("root") if not line.startswith("sshd")} <= before

    lab.monkey("provider", "remove", "bare")
    assert not home.exists()
    left = [line for _, line in bare_host.processes(bare_host.user) if "monkey" in line]
    assert left == []
