"""Providers against test hosts: what `provider add` and `provider check` find on real machines."""

import subprocess

import pytest

from monkey.engine import Engine
from monkey.paths import Home
from monkey.providers import ProviderBook, classify_unreachable, pin, probe, probe_all, ssh_options

pytestmark = pytest.mark.hosts


def spec(host) -> str:
    return f"{host.user}@{host.address}:{host.port}"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def lab(home, *hosts, **settings):
    results = probe_all([spec(host) for host in hosts], hosts[0].key_file)
    pin(home, results)
    return ProviderBook(home).add(
        "lab", "ssh", hosts=[spec(host) for host in hosts], key_file=str(hosts[0].key_file), **settings
    )


def check_hosts(home, provider, **variables):
    """What `provider check` runs, as the core runs it: the result of role client by host."""
    result = Engine(home.runs).run("check_hosts", provider.write_inventory(), variables=variables)
    assert result.rc == 0, result.output
    return {name: host.results["client"] for name, host in result.hosts.items()}


def test_hosts_are_probed_at_once_and_show_their_own_keys(ssh_hosts):
    results = probe_all([spec(host) for host in ssh_hosts], ssh_hosts[0].key_file)
    assert [(result.host, result.error) for result in results] == [(spec(host), None) for host in ssh_hosts]
    assert len({result.fingerprint for result in results}) == len(ssh_hosts)
    for result, host in zip(results, ssh_hosts, strict=True):
        assert result.known_hosts_line.split()[1:3] == host.host_key.split()[:2]


def test_a_host_with_nothing_but_sshd_and_python_will_do(bare_host, home):
    result = probe(spec(bare_host), bare_host.key_file)
    assert result.error is None
    assert result.python.startswith("3.")


def test_a_host_without_python_is_told_apart(fresh_host):
    fresh_host.ssh(["sh", "-c", "rm -f /usr/bin/python3*"], user="root")
    result = probe(spec(fresh_host), fresh_host.key_file)
    assert result.error == f"{spec(fresh_host)} has no python3: install Python 3.8 or newer there"
    assert result.fingerprint


def test_a_host_that_died_in_silence_and_one_that_refuses(fresh_host, home, monkeypatch):
    monkeypatch.setattr(ssh_options, "CONNECT_TIMEOUT_S", 1)
    provider = lab(home, fresh_host)
    entry = provider.hosts()[0]
    fresh_host.kill()
    refused = subprocess.run(provider.ssh_argv(entry, "true"), capture_output=True, text=True, check=False)
    assert "refused the connection" in classify_unreachable(refused.stderr, entry)
    fresh_host.cut()
    assert "does not answer" in probe(spec(fresh_host), fresh_host.key_file).error


def test_check_says_what_a_host_has_and_leaves_nothing_on_it(bare_host, home):
    provider = lab(home, bare_host, client_home="~/check of hosts")
    (seen,) = check_hosts(home, provider).values()
    cpus = int(bare_host.ssh(["nproc"]).stdout)
    kilobytes = bare_host.ssh(["sh", "-c", "grep MemTotal /proc/meminfo"]).stdout.split()[1]
    assert seen["facts"]["cpus"] == cpus
    assert seen["facts"]["memory_mb"] == int(kilobytes) // 1024
    assert seen["facts"]["gpus"] == []
    assert seen["facts"]["disk_free_mb"] > 0
    assert seen["facts"]["hostname"] == bare_host.ssh(["uname", "-n"]).stdout.strip()
    assert seen["python"] == bare_host.ssh(["python3", "-V"]).stdout.split()[1]
    assert bare_host.ssh(["test", "-e", "check of hosts"], check=False).returncode == 1


def test_check_installs_the_client_when_it_is_told_to(bare_host, home):
    provider = lab(home, bare_host, client_home="~/check that installs")
    try:
        first, second = (next(iter(check_hosts(home, provider, check_hosts_install=True).values())) for _ in range(2))
        assert (first["changed"], second["changed"]) == (True, False)
        assert bare_host.ssh(["test", "-f", "check that installs/monkey-client.pyz"], check=False).returncode == 0
    finally:
        bare_host.ssh(["rm", "-rf", "check that installs"])


def test_check_of_this_machine_takes_the_same_way(home):
    provider = ProviderBook(home).get("local")
    (seen,) = check_hosts(home, provider).values()
    assert seen["facts"]["cpus"] >= 1
    assert not home.client.exists()
