"""The test hosts are what tests take them for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostmachine
import hostpool
import pytest
from hostpool import Host, HostError, HostPool

pytestmark = pytest.mark.hosts
_HOSTS_PY = Path(hostpool.__file__).with_name("hosts.py")


def _hosts_py(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, _HOSTS_PY, *map(str, args)], capture_output=True, text=True, timeout=120, check=False
    )


def test_each_host_is_a_machine_of_its_own(ssh_hosts: list[Host]) -> None:
    seen = {host.ssh(["sh", "-c", "hostname; cat /etc/machine-id; ip -br addr show eth0"]).stdout for host in ssh_hosts}
    assert len(seen) == 3
    assert len({host.host_key for host in ssh_hosts}) == 3
    pids = [pid for host in ssh_hosts for pid, _ in host.processes()]
    assert len(pids) == len(set(pids)) > len(ssh_hosts)


def test_the_user_is_unprivileged_and_has_a_systemd_of_its_own(ssh_hosts: list[Host]) -> None:
    host = ssh_hosts[0]
    assert host.ssh(["id", "-un"]).stdout == "researcher\n"
    assert host.ssh(["sudo", "-n", "true"], check=False).returncode != 0
    assert host.ssh(["systemctl", "--user", "is-system-running"]).stdout == "running\n"
    assert host.ssh(["systemd-run", "--user", "--wait", "--pipe", "echo", "hi"]).stdout == "hi\n"
    assert host.ssh(["id", "-u"], user="root").stdout == "0\n"


def test_bare_host_has_sshd_and_python_alone(bare_host: Host) -> None:
    script = "for tool in systemctl sudo rsync pip pip3 uv; do command -v $tool; done; python3 -c 'import ensurepip'"
    done = bare_host.ssh(["sh", "-c", script], check=False)
    assert done.stdout == ""
    assert "ensurepip" in done.stderr
    assert {line.split()[0] for _, line in bare_host.processes() if line} <= {"catatonit", "sshd:"}


def test_pip_environment_is_built_without_a_network(bare_host: Host) -> None:
    script = (
        "set -e; d=$(mktemp -d); python3 -m venv --without-pip $d; echo numpy > $d/wanted; "
        "$d/bin/python $(echo /wheels/pip-*.whl)/pip install -q -r $d/wanted; $d/bin/python -c 'import numpy'; rm -r $d"
    )
    assert bare_host.ssh(["sh", "-c", script], timeout_s=90).returncode == 0


def test_wrong_host_key_is_refused(ssh_hosts: list[Host], tmp_path: Path) -> None:
    first, second = ssh_hosts[:2]
    forged = tmp_path / "known_hosts"
    forged.write_text(f"{first.address} {second.host_key}\n")
    argv = [word.replace(str(first.known_hosts), str(forged)) for word in first.ssh_argv()]
    done = subprocess.run([*argv, "true"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_kill_and_power_on_keep_the_disk_and_nothing_else(fresh_host: Host) -> None:
    fresh_host.ssh(["sh", "-c", "echo kept > kept; nohup sleep 1000 >/dev/null 2>&1 &"])
    deadline = time.monotonic() + 5
    while not any(line == "sleep 1000" for _, line in fresh_host.processes("researcher")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    fresh_host.kill()
    assert fresh_host.processes() == []
    refused = fresh_host.ssh(["true"], check=False)
    assert refused.returncode == 255
    assert "refused" in refused.stderr
    fresh_host.power_on()
    assert fresh_host.ssh(["cat", "kept"]).stdout == "kept\n"
    assert not any("sleep 1000" in line for _, line in fresh_host.processes())


def test_cut_stalls_a_connection_and_heal_lets_it_go_on(fresh_host: Host) -> None:
    process = subprocess.Popen(
        [*fresh_host.ssh_argv(), "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("before\n")
        process.stdin.flush()
        assert process.stdout.readline() == "before\n"
        fresh_host.cut()
        process.stdin.write("during\n")
        process.stdin.flush()
        time.sleep(0.3)
        assert process.poll() is None
        fresh_host.heal()
        assert process.stdout.readline() == "during\n"
    finally:
        process.kill()
        process.communicate()


def test_disk_can_be_filled(host_pool: HostPool) -> None:
    host = host_pool.create("small", systemd=False, disk_mb=16)
    try:
        done = host.ssh(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=40"], check=False)
        assert "No space left on device" in done.stderr
    finally:
        host.destroy()


def test_destroy_leaves_nothing(host_pool: HostPool) -> None:
    host = host_pool.create("gone", systemd=False)
    init = host.init_pid
    assert init is not None
    host.destroy()
    host.destroy()  # a second call does nothing
    assert not Path(f"/proc/{init}").exists()
    assert not host.folder.exists()
    assert not Path(f"/sys/class/net/{host.link}").exists()
    assert not Path(f"/run/netns/{host.id}").exists()
    assert host.id not in Path("/proc/self/mounts").read_text()


def test_next_pool_removes_what_a_killed_session_left(host_pool: HostPool, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    session = subprocess.Popen(["sleep", "1000"])
    try:
        assert (
            _hosts_py("create", "--count", 1, "--no-systemd", "--state", state, "--owner-pid", session.pid).returncode
            == 0
        )
        root = Path(json.loads(state.read_text())["hosts"][0]["root"])
        hostpool.sweep()
        assert root.is_dir()  # its owner lives
    finally:
        session.send_signal(signal.SIGKILL)
        session.wait()
    with HostPool():
        assert not root.exists()


def test_command_line_makes_hosts_that_outlive_it(host_pool: HostPool, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    try:
        made = _hosts_py("create", "--count", 2, "--prefix", "m", "--no-systemd", "--state", state)
        assert made.returncode == 0, made.stderr
        hosts = json.loads(state.read_text())["hosts"]
        assert [host["instance"] for host in hosts] == ["m1", "m2"]
        twice = _hosts_py("create", "--state", state)
        assert twice.returncode == 1
        assert "destroy them first" in twice.stderr
        found = {
            host.name: host for host in hostpool.find_hosts() if str(host.root) in {record["root"] for record in hosts}
        }
        assert _hosts_py("kill", "m1", "--state", state).returncode == 0
        assert found["m1"].ssh(["true"], check=False).returncode == 255
        assert _hosts_py("power-on", "m1", "--state", state).returncode == 0
        assert hostmachine.load_host(found["m1"].folder).ssh(["echo", "up"]).stdout == "up\n"
        unknown = _hosts_py("kill", "m3", "--state", state)
        assert unknown.returncode == 1
        assert "there are m1, m2" in unknown.stderr
    finally:
        assert _hosts_py("destroy", "--state", state).returncode == 0
    assert not state.exists()
    assert not any(Path(host["root"]).exists() for host in hosts)


def test_failed_command_says_what_the_host_said(bare_host: Host) -> None:
    with pytest.raises(HostError, match=r"bare: ls /nowhere exited 2: .*No such file"):
        bare_host.ssh(["ls", "/nowhere"])


def test_isolated_home_ends_what_was_started_in_it(make_monkey_home, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    home = make_monkey_home("ended")
    home.path.mkdir()
    process = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], env=home.env, start_new_session=True
    )
    stranger = subprocess.Popen(["sleep", "1000"], env={**os.environ, "MONKEY_HOME": f"{home.path}-other"})
    try:
        time.sleep(0.1)
        assert process.pid in home.processes()
        home.close()
        assert process.wait(timeout=5) == -signal.SIGKILL
        assert stranger.poll() is None
    finally:
        for left in (process, stranger):
            left.kill()
            left.wait()
