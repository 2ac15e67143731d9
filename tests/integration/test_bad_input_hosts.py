"""Bad input that involves machines: one line that names the thing and what to do, exit code 2, nothing changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts


def _machine(host: Any) -> str:
    return f"{host.user}@{host.address}:{host.port}"


def _add(home: Any, host: Any, *more: str, name: str = "lab", key: Path | None = None) -> Any:
    """``provider add --noinput``."""
    flags = ("--type", "ssh", "--host", _machine(host), "--key", str(key or host.key_file), "--noinput", *more)
    return home.monkey("provider", "add", name, *flags, timeout_s=90)


def _kept(home: Any) -> dict[str, bytes]:
    """What bad input must not change."""
    names = ("providers.yml", "known_hosts")
    found = {name: (home.path / name).read_bytes() for name in names if (home.path / name).exists()}
    found = {name: text for name, text in found.items() if text not in {b"", b"providers: []\n"}}  # files with nothing
    inventories = home.path / "inventory"
    return found | {str(path): path.read_bytes() for path in inventories.glob("lab*") if path.is_file()}


def _refused(done: Any, *words: str) -> None:
    """Exit code 2, nothing on stdout, and the last of stderr is one line that says these words."""
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    lines = done.stderr.splitlines()
    said = [line for line in lines if line.startswith("monkey: ")]
    assert len(said) == 1 and lines[-1] == said[0], done.stderr
    for word in words:
        assert word in said[0], done.stderr


def test_hosts_that_cannot_be_added_say_why(monkey_home: Any, fresh_host: Any, tmp_path: Path) -> None:
    monkey_home.monkey("core", "start", check=True)
    before = _kept(monkey_home)
    where = _machine(fresh_host)

    # A key that the host does not know.
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
    _refused(_add(monkey_home, fresh_host, key=stranger), where, "refused the key", str(stranger), "ssh-copy-id")
    assert _kept(monkey_home) == before

    # One good host does not make up for one that refuses.
    nobody = f"{fresh_host.user}@{fresh_host.address}:2"
    _refused(_add(monkey_home, fresh_host, "--host", nobody), nobody, "refused the connection")
    assert _kept(monkey_home) == before

    # No Python.
    fresh_host.ssh(["sh", "-c", "chmod 0 /usr/bin/python3*"], user="root")
    _refused(_add(monkey_home, fresh_host), where, "no python3", "install Python 3.8 or newer")
    assert _kept(monkey_home) == before
    fresh_host.ssh(["sh", "-c", "chmod 755 /usr/bin/python3*"], user="root")

    # Off.
    fresh_host.kill()
    _refused(_add(monkey_home, fresh_host), where)
    assert _kept(monkey_home) == before
    names = [provider["name"] for provider in json.loads(monkey_home.monkey("list", "providers", "--json").stdout)]
    assert names == ["local"]


def test_a_host_whose_key_has_changed_is_refused_and_jobs_there_are_kept(
    monkey_home: Any, fresh_host: Any, tmp_path: Path
) -> None:
    assert _add(monkey_home, fresh_host).returncode == 0
    before = _kept(monkey_home)
    pinned = fresh_host.host_key
    again = "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
    fresh_host.ssh(["sh", "-c", again], user="root")
    new = " ".join((fresh_host.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2])
    fresh_host.known_hosts.write_text(f"{fresh_host.address} {new}\n")
    fresh_host.kill()  # connections that stand were made with the old key
    fresh_host.power_on()

    _refused(_add(monkey_home, fresh_host, name="lab2"), _machine(fresh_host), "host key", "has changed")
    assert _kept(monkey_home) == before
    checked = monkey_home.monkey("provider", "check", "lab", "--json")
    assert checked.returncode == 1
    assert "has changed" in json.loads(checked.stdout)["hosts"][0]["message"]
    assert pinned.split()[1] in (monkey_home.path / "known_hosts").read_text()
    # A job for it waits and says why; it is not failed, and nothing of it goes to the other machine.
    folder = tmp_path / "code"
    folder.mkdir()
    juid = monkey_home.monkey("run", "-d", "-p", "lab", "true", cwd=folder, check=True).stdout.strip()
    for _ in range(50):
        job = json.loads(monkey_home.monkey("info", "job", juid, "--json", check=True).stdout)
        if "has changed" in job["message"]:
            break
    assert "has changed" in job["message"] and job["state"] in {"QUEUED", "DISPATCHING"}
    monkey_home.monkey("kill", "job", juid, check=True)


def test_words_about_providers_that_are_not_there(monkey_home: Any, ssh_hosts: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    assert _add(monkey_home, ssh_hosts[0]).returncode == 0
    before = _kept(monkey_home)
    host = json.loads(monkey_home.monkey("info", "provider", "lab", "--json").stdout)["hosts"][0]["name"]
    _refused(monkey_home.monkey("run", "-p", "lap", "true", cwd=folder), "lap", "did you mean lab")
    _refused(
        monkey_home.monkey("run", "-p", "lab", "-i", host + "9", "true", cwd=folder), host + "9", f"did you mean {host}"
    )
    _refused(monkey_home.monkey("run", "-p", "lab", "--cpus", "4000", "true", cwd=folder), "cpus", "4000")
    _refused(monkey_home.monkey("run", "-p", "lab", "--gpus", "1", "true", cwd=folder), "gpus")
    _refused(monkey_home.monkey("info", "provider", "lap"), "lap", "lab")
    _refused(monkey_home.monkey("provider", "remove", "lap"), "lap", "lab")
    _refused(_add(monkey_home, ssh_hosts[1]), "lab", "there is a provider of this name")
    _refused(monkey_home.monkey("logs", "26-01-01-001"), "26-01-01-001")
    _refused(monkey_home.monkey("job", "rerun", "zzz"), "zzz")
    _refused(monkey_home.monkey("create", "instance", "-p", "lab"), "lab", "ssh")
    assert _kept(monkey_home) == before
    assert json.loads(monkey_home.monkey("list", "jobs", "--json").stdout) == []


def test_a_host_whose_disk_is_full(monkey_home: Any, host_pool: Any, tmp_path: Path) -> None:
    host = host_pool.create("tiny", disk_mb=64)
    try:
        host.ssh(
            ["sh", "-c", "for size in 65536 512; do dd if=/dev/zero of=filler$size bs=$size 2>/dev/null; done; true"]
        )
        before = _kept(monkey_home)
        _refused(_add(monkey_home, host), _machine(host), "disk", "full")
        assert _kept(monkey_home) == before

        host.ssh(["sh", "-c", "rm filler*"])
        assert _add(monkey_home, host).returncode == 0
        folder = tmp_path / "code"
        folder.mkdir()
        (folder / "big").write_bytes(os.urandom(20_000_000))
        host.ssh(["sh", "-c", "head -c 40000000 /dev/zero > filler; true"])
        done = monkey_home.monkey("run", "-p", "lab", "true", cwd=folder, timeout_s=90)
        assert done.returncode == 1, done.stdout + done.stderr
        job = json.loads(monkey_home.monkey("list", "jobs", "--json").stdout)[0]
        assert job["state"] == "FAILED_SETUP" and host.address in job["message"], job
        assert "space" in job["message"] or "disk" in job["message"]

        host.ssh(["sh", "-c", "rm filler"])
        again = monkey_home.monkey("run", "-p", "lab", "sh", "-c", "wc -c < big", cwd=folder, timeout_s=90)
        assert (again.returncode, again.stdout.strip()) == (0, "20000000"), again.stderr
    finally:
        host.destroy()
        host_pool.hosts.remove(host)


@pytest.fixture
def small_home(monkey_home: Any) -> Iterator[Any]:
    """A MONKEY_HOME on a disk of 12 MB."""
    monkey_home.path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=700", "tmpfs", str(monkey_home.path)], check=True)
    try:
        yield monkey_home
    finally:
        (monkey_home.path / "filler").unlink(missing_ok=True)
        monkey_home.close()
        subprocess.run(["umount", "-l", str(monkey_home.path)], check=True)


def test_a_main_node_whose_disk_is_full(small_home: Any, tmp_path: Path) -> None:
    small_home.monkey("core", "start", check=True)
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "big").write_bytes(os.urandom(20_000_000))
    _refused(small_home.monkey("run", "-d", "true", cwd=folder), "disk", "full")
    (folder / "big").unlink()
    assert json.loads(small_home.monkey("list", "jobs", "--json").stdout) == []

    # Not even a job's record fits: it is not acknowledged.
    free = shutil.disk_usage(small_home.path).free
    with (small_home.path / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"\0" * min(4096, free))
        except OSError:
            pass
    _refused(small_home.monkey("run", "-d", "true", cwd=folder), "disk", "free some space")
    assert json.loads(small_home.monkey("list", "jobs", "--json").stdout) == []
    (small_home.path / "filler").unlink()
    done = small_home.monkey("run", "echo", "fits", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "fits\n"), done.stderr
