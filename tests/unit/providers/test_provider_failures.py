"""Every way not to reach a host becomes one sentence: which host, and what to do next.

The texts are what OpenSSH 9.2 and ansible-core 2.19 wrote; integration tests make the common ones anew.
"""

from pathlib import Path

import pytest

from monkey.providers import HostEntry, classify_unreachable

HOST = HostEntry("gpu1", "gpu1.example.org", "ada", 2222)
KEY = Path("/home/ada/.ssh/lab")
ANSIBLE = "Failed to connect to the host via ssh: "
CHANGED = (
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n"
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n"
    "The fingerprint for the ED25519 key sent by the remote host is\n"
    "SHA256:4NS3G8X+0irKXF857Gc/aktC72xKhcO0YNj5t8yNNH0.\r\n"
    "Offending ED25519 key in /h/known_hosts:1\r\n"
    "Host key for gpu1 has changed and you have requested strict checking.\r\n"
    "Host key verification failed."
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ssh: Could not resolve hostname gpu1.example.org: Name or service not known",
            ["the name gpu1.example.org does not resolve", "ssh_config"],
        ),
        ("ssh: Could not resolve hostname door: Temporary failure in name resolution", ["the name door does not"]),
        (
            "ssh: connect to host gpu1.example.org port 2222: Connection refused",
            ["refused the connection at port 2222", "sshd runs"],
        ),
        ("ssh: connect to host gpu1.example.org port 2222: Connection timed out", ["does not answer", "firewall"]),
        ("ssh: connect to host gpu1.example.org port 2222: No route to host", ["does not answer"]),
        (
            "Connection timed out during banner exchange\r\nConnection to 10.0.0.2 port 2222 timed out",
            ["does not answer"],
        ),
        ("Timeout, server gpu1.example.org not responding.", ["does not answer"]),
        (
            "ada@gpu1.example.org: Permission denied (publickey,password).",
            [
                "refused the key /home/ada/.ssh/lab",
                "`ssh-copy-id -i /home/ada/.ssh/lab.pub -p 2222 ada@gpu1.example.org`",
            ],
        ),
        ("root@door: Permission denied (publickey).", ["(as root@door) refused the key"]),
        ("Received disconnect from 10.0.0.2: 2: Too many authentication failures", ["refused the key"]),
        (
            CHANGED,
            ["has changed", "now shows ED25519 SHA256:4NS3G8X+0irKXF857Gc/aktC72xKhcO0YNj5t8yNNH0;", "provider add"],
        ),
        (
            "No ED25519 host key is known for gpu1 and you have requested strict checking.\r\n"
            "Host key verification failed.",
            ["no host key is pinned", "`monkey provider add`"],
        ),
        (
            "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\n"
            "Permissions 0644 for '/home/ada/.ssh/lab' are too"
            ' open.\nThis private key will be ignored.\nLoad key "/home/ada/.ssh/lab": bad permissions\n'
            "ada@gpu1.example.org: Permission denied (publickey).",
            ["others can read /home/ada/.ssh/lab", "`chmod 600 /home/ada/.ssh/lab`"],
        ),
        (
            "no such identity: /home/ada/.ssh/lab: No such file or directory\n"
            "ada@gpu1.example.org: Permission denied (publickey).",
            ["key file /home/ada/.ssh/lab is not there"],
        ),
        (
            "channel 0: open failed: connect failed: Connection refused\r\nstdio forwarding failed\r\n"
            "Connection closed by UNKNOWN port 65535",
            ["from its jump host (Connection refused)", "ProxyJump"],
        ),
        (
            "/home/ada/.ssh/config: line 3: Bad configuration option: prxyjump",
            ["line 3: Bad configuration option: prxyjump"],
        ),
        ("kex_exchange_identification: Connection closed by remote host", ["closed the connection before it was up"]),
        ("mkdir: cannot create directory '/home/ada/.ansible/tmp': No space left on device", ["disk of", "is full"]),
        ("/bin/sh: 1: python3: not found", ["has no python3", "3.8"]),
        ("bash: line 1: python3: command not found", ["has no python3"]),
    ],
)
@pytest.mark.parametrize("before", ["", ANSIBLE])
def test_each_failure_has_its_sentence(text, expected, before):
    sentence = classify_unreachable(before + text, HOST, KEY)
    assert "ada@gpu1.example.org:2222" in sentence
    assert "\n" not in sentence and "\r" not in sentence
    for words in expected:
        assert words in sentence


def test_without_a_key_named_every_key_was_tried():
    sentence = classify_unreachable("x: Permission denied (publickey).", HostEntry("gpu1", "gpu1"))
    assert "refused every key of your agent and ssh_config: let it in with `ssh-copy-id gpu1`" in sentence


def test_what_is_not_known_is_quoted_and_never_more_than_a_line():
    sentence = classify_unreachable("first\nsomething new \x1b[31mhappened\x1b[0m\n\n", "gpu1")
    assert sentence == "gpu1 was not reached: something new happened; try `ssh gpu1 true`"
    assert "without a word" in classify_unreachable("", "gpu1")


def test_a_new_fingerprint_is_shown_beside_the_pinned_one(tmp_path):
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("gpu1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxQwF4jN6zBVTWaaLkLoo5gGf5YWrkyc4m0w9zPQmsp\n")
    sentence = classify_unreachable(CHANGED, HOST, KEY, known_hosts)
    assert "pinned is ED25519 SHA256:" in sentence
    assert sentence.count("SHA256:") == 2
