"""How hosts are written, and the options every ssh gets."""

import shlex
import subprocess
from pathlib import Path

import pytest

from monkey.errors import UsageProblem
from monkey.providers.hosts import HostEntry, parse_host
from monkey.providers.ssh_options import SshAccess, remote_path


@pytest.mark.parametrize(
    ("text", "name", "address", "user", "port"),
    [
        ("gpu1", "gpu1", "gpu1", None, None),
        ("ada@gpu1.example.org", "gpu1.example.org", "gpu1.example.org", "ada", None),
        ("ada@10.0.0.2:22", "10.0.0.2", "10.0.0.2", "ada", 22),
        ("10.0.0.2:2222", "10.0.0.2-2222", "10.0.0.2", None, 2222),
        ("ada@corp.example@bastion", "bastion", "bastion", "ada@corp.example", None),
        ("ada@[fd00::1]:2222", "fd00--1-2222", "fd00::1", "ada", 2222),
        ("[fd00::1]", "fd00--1", "fd00::1", None, None),
        ("fd00::1", "fd00--1", "fd00::1", None, None),
        ("[fe80::1%eth0]:22", "fe80--1-eth0", "fe80::1%eth0", None, 22),
        ("  gpu1  ", "gpu1", "gpu1", None, None),
    ],
)
def test_hosts_as_people_write_them(text, name, address, user, port):
    assert parse_host(text) == HostEntry(name, address, user, port)


@pytest.mark.parametrize("text", ["gpu1", "ada@10.0.0.2:22", "10.0.0.2:2222", "ada@[fd00::1]:2222", "[fd00::1]"])
def test_a_host_is_shown_as_it_was_written(text):
    assert str(parse_host(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@gpu1",
        "ada@",
        "-oProxyCommand=touch x",
        "ada@-oProxyCommand=x",
        "-l@gpu1",
        "gpu1:",
        "gpu1:0",
        "gpu1:65536",
        "gpu1:ssh",
        "gpu1:٣",
        "gpu 1",
        "gpu1;true",
        "$(true)",
        "{{ x }}",
        "a{1,2}",
        "lab[1:3]",
        "[fd00::1",
        "[gpu1]:22",
        "[fd00::1]22",
        "fe80::1%$(x)",
        "ada ada@gpu1",
        "gpu1\nProxyCommand x",
        "x" * 300,
    ],
)
def test_what_is_no_host_is_refused_in_one_line(text):
    with pytest.raises(UsageProblem) as refused:
        parse_host(text)
    assert refused.value.field == "host"
    assert "expected user@host:port" in str(refused.value)
    assert "\n" not in str(refused.value)


def effective(argv, tmp_path) -> dict[str, str]:
    """What ssh itself makes of a command line."""
    out = subprocess.run([argv[0], "-G", *argv[1:]], check=True, capture_output=True, text=True).stdout
    return {key: value for key, _, value in (line.partition(" ") for line in out.splitlines())}


def test_ssh_understands_every_option_as_it_was_meant(tmp_path):
    config = tmp_path / "my config"
    config.write_text(
        "Host gpu1\n  HostName 10.1.1.1\n  User grace\n  ProxyJump door\n"
        "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  VerifyHostKeyDNS yes\n"
        "  KnownHostsCommand /bin/echo %H\n  HostKeyAlias other\n  ControlMaster auto\n  ControlPath /tmp/%C\n"
        "  BatchMode no\n  LocalForward 9999 localhost:1\n"
    )
    access = SshAccess(tmp_path / "100% home" / "known_hosts", tmp_path / "a key", config)
    found = effective(access.argv(HostEntry("GPU1", "gpu1", port=2222), "true"), tmp_path)
    expected = {
        # of the user's ssh_config
        "hostname": "10.1.1.1",
        "user": "grace",
        "proxyjump": "door",
        # ours, whatever it says
        "port": "2222",
        "stricthostkeychecking": "true",
        "globalknownhostsfile": "/dev/null",
        "hostkeyalias": "gpu1",
        "verifyhostkeydns": "false",
        "updatehostkeys": "false",
        "controlmaster": "false",
        "batchmode": "yes",
        "identitiesonly": "yes",
        "serveraliveinterval": "10",
        "serveralivecountmax": "3",
        "clearallforwardings": "yes",
    }
    assert {key: found.get(key) for key in expected} == expected
    assert found["userknownhostsfile"] == str(tmp_path / "100% home" / "known_hosts")
    assert found["identityfile"] == str(tmp_path / "a key")
    assert "controlpath" not in found or found["controlpath"] == "none"
    assert found.get("knownhostscommand", "none") == "none"


def test_ansible_gets_exactly_the_options_of_the_stream(tmp_path):
    access = SshAccess(tmp_path / "a home" / "known_hosts", tmp_path / "key")
    host = HostEntry("gpu1", "gpu1.example.org", "ada", 2222)
    variables = access.ansible_variables(host)
    common = shlex.split(variables["ansible_ssh_common_args"])
    argv = access.argv(host, "true")
    assert argv[2 : 2 + len(common)] == common == access.options(host)
    assert variables["ansible_host"] == "gpu1.example.org"
    assert variables["ansible_user"] == "ada"
    assert variables["ansible_port"] == 2222
    assert variables["ansible_ssh_private_key_file"] == str(tmp_path / "key")


def test_what_was_not_given_is_left_to_ssh_config(tmp_path):
    access = SshAccess(tmp_path / "known_hosts")
    host = HostEntry("gpu1", "gpu1")
    assert set(access.ansible_variables(host)) == {"ansible_connection", "ansible_host", "ansible_ssh_common_args"}
    words = " ".join(access.argv(host, "true"))
    for option in ("User=", "Port=", "IdentityFile=", "IdentitiesOnly=", "-F"):
        assert option not in words


def test_checking_of_host_keys_cannot_be_switched_off(tmp_path):
    with pytest.raises(ValueError, match="always checked"):
        SshAccess(tmp_path / "known_hosts").options(HostEntry("a", "a"), strict="no")


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a${HOME}b", "a\nb"])
def test_a_path_that_ssh_cannot_be_told_is_refused(tmp_path, name):
    host = HostEntry("a", "a")
    with pytest.raises(UsageProblem, match="MONKEY_HOME"):
        SshAccess(tmp_path / name / "known_hosts").options(host)
    with pytest.raises(UsageProblem, match="key_file"):
        SshAccess(tmp_path / "known_hosts", tmp_path / name).argv(host, "true")


@pytest.mark.parametrize("rest", ["plain", "a b", "$(touch x)", "'; touch x; '", "{{ x }}", "*"])
def test_a_remote_path_is_one_word_below_the_home_folder_there(tmp_path, rest):
    out = subprocess.run(
        ["sh", "-c", f"printf %s {remote_path('~/' + rest)}"],
        env={"HOME": "/home/ada", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert out == f"/home/ada/{rest}"
    assert not Path(tmp_path / "x").exists()
