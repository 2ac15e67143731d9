"""Providers against a real sshd on the loopback: own host key, own port, run by whoever runs the tests."""

import getpass
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monkey.errors import UsageProblem
from monkey.paths import Home
from monkey.providers import ProviderBook, classify_unreachable, confirm, pin, probe, probe_all

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
ME = getpass.getuser()


def keygen(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return path


def shown_by_ssh_keygen(public_key: Path) -> str:
    out = subprocess.run(["ssh-keygen", "-lf", str(public_key)], check=True, capture_output=True, text=True).stdout
    return out.split()[1]


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return probe_socket.getsockname()[1]


class Sshd:
    """An sshd of its own; `path` is what a login finds as PATH, `forced` a command it runs instead of the one asked."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self.host_key = keygen(folder / "host_key")
        self.key = keygen(folder / "user_key")
        self.process = None

    @property
    def spec(self) -> str:
        return f"{ME}@127.0.0.1:{self.port}"

    def start(self, *options: str):
        shutil.copy(f"{self.key}.pub", self.folder / "authorized_keys")
        config = self.folder / "sshd_config"
        config.write_text(
            "\n".join(
                [
                    f"Port {self.port}",
                    "ListenAddress 127.0.0.1",
                    f"HostKey {self.host_key}",
                    f"AuthorizedKeysFile {self.folder / 'authorized_keys'}",
                    f"PidFile {self.folder / 'pid'}",
                    "StrictModes no",
                    "UsePAM no",
                    "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no",
                    "PermitRootLogin yes",
                    "Subsystem sftp internal-sftp",
                    *options,
                ]
            )
            + "\n"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own chroot for its unprivileged half
        log = (self.folder / "log").open("a")
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd did not come up")

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def new_host_key(self):
        for suffix in ("", ".pub"):
            Path(f"{self.host_key}{suffix}").unlink()
        keygen(self.host_key)


@pytest.fixture
def sshd(tmp_path):
    if not SSHD:
        pytest.fail("sshd is missing: install openssh-server")
    servers = []

    def make(*options: str) -> Sshd:
        servers.append(Sshd(tmp_path / f"sshd{len(servers)}"))
        return servers[-1].start(*options)

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "monkey home")  # a blank in it, as a user's folder may have
    home.create()
    return home


def added(home, server, **settings):
    pin(home, [probe(server.spec, server.key)])
    return ProviderBook(home).add("lab", "ssh", hosts=[server.spec], key_file=str(server.key), **settings)


def run(argv, **kwargs):
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, **kwargs)


def ansible(home, provider, *arguments):
    """Ansible with nothing of the user's configuration; no shared connection, so nothing of it is left behind."""
    (home.root / "ansible.cfg").write_text("[ssh_connection]\npipelining = true\nssh_args =\n")
    return run(
        [str(Path(sys.executable).parent / "ansible"), "all", "-i", str(provider.write_inventory()), *arguments],
        env={**os.environ, "ANSIBLE_CONFIG": str(home.root / "ansible.cfg"), "ANSIBLE_HOME": str(home.root / "a")},
        cwd=home.root,
    )


def test_probe_shows_the_fingerprint_and_the_python_of_a_host(sshd):
    server = sshd()
    result = probe(server.spec, server.key)
    assert result.error is None
    assert result.fingerprint == shown_by_ssh_keygen(Path(f"{server.host_key}.pub"))
    assert result.key_type == "ED25519"
    assert re.fullmatch(r"3\.\d+\.\d+", result.python)


def test_probe_leaves_the_users_known_hosts_alone(sshd, tmp_path):
    server = sshd()
    theirs = tmp_path / "theirs"
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {theirs}\n  ControlMaster auto\n  ControlPath {tmp_path}/c\n")
    assert probe(server.spec, server.key, config).error is None
    assert not theirs.exists()


def test_an_alias_of_ssh_config_is_a_host(sshd, home, tmp_path):
    server = sshd()
    config = tmp_path / "config"
    config.write_text(
        f"Host GPU1\n  HostName 127.0.0.1\n  Port {server.port}\n  User {ME}\n  IdentityFile {server.key}\n"
        "  StrictHostKeyChecking no\n"
    )
    pin(home, [probe("GPU1", ssh_config=config)])
    provider = ProviderBook(home).add("lab", "ssh", hosts=["GPU1"], ssh_config=str(config))
    done = run(provider.ssh_argv(provider.host("GPU1"), "echo there"))
    assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
    # Ansible takes the same way.
    assert '"ping": "pong"' in ansible(home, provider, "-m", "ping").stdout


def test_a_jump_host_of_ssh_config_is_used(sshd, home, tmp_path):
    """The jump host is the user's own affair: its key comes from their known_hosts."""
    jump, server = sshd(), sshd()
    config, theirs = tmp_path / "config", tmp_path / "theirs"
    public = Path(f"{jump.host_key}.pub").read_text()
    theirs.write_text(f"[127.0.0.1]:{jump.port} {public}")
    config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.key}\n"
        f"  UserKnownHostsFile {theirs}\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.key}\n  ProxyJump jump\n"
    )
    result = probe("inner", ssh_config=config)
    assert result.error is None
    assert result.fingerprint == shown_by_ssh_keygen(Path(f"{server.host_key}.pub"))
    assert "Accepted publickey" in (jump.folder / "log").read_text()
    server.stop()
    assert re.search(
        r"^inner cannot be reached from its jump host .*ProxyJump", probe("inner", ssh_config=config).error
    )


def test_a_pinned_host_is_reached_by_ansible_and_by_ssh(sshd, home):
    server = sshd()
    provider = added(home, server)
    host = provider.hosts()[0]
    done = run(provider.ssh_argv(host, "cat"), input="a line\n")
    assert (done.returncode, done.stdout) == (0, "a line\n"), done.stderr
    done = ansible(home, provider, "-m", "ping")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"127.0.0.1-{server.port} | SUCCESS" in done.stdout


def test_a_host_that_is_not_pinned_is_refused(sshd, home):
    server = sshd()
    provider = ProviderBook(home).add("lab", "ssh", hosts=[server.spec], key_file=str(server.key))
    host = provider.hosts()[0]
    done = run(provider.ssh_argv(host, "echo there"))
    assert (done.returncode, done.stdout) == (255, "")
    assert classify_unreachable(done.stderr, host).startswith(
        f"no host key is pinned for {server.spec}: pin the new key"
    )
    assert "UNREACHABLE" in ansible(home, provider, "-m", "ping").stdout


def test_a_changed_host_key_is_told_with_both_fingerprints_and_refused(sshd, home):
    server = sshd()
    provider = added(home, server)
    before = shown_by_ssh_keygen(Path(f"{server.host_key}.pub"))
    server.stop()
    server.new_host_key()
    server.start()
    now = shown_by_ssh_keygen(Path(f"{server.host_key}.pub"))
    host = provider.hosts()[0]

    said = [
        probe(server.spec, server.key, pinned=home.known_hosts).error,
        classify_unreachable(run(provider.ssh_argv(host, "true")).stderr, host),
        classify_unreachable(ansible(home, provider, "-m", "ping").stdout, host, server.key, home.known_hosts),
    ]
    for sentence in said:
        assert sentence.startswith(f"the host key of {server.spec} has changed: pinned is ED25519 {before},")
        assert f"the host now shows ED25519 {now};" in sentence
        assert "`monkey provider remove` and `monkey provider add`" in sentence

    # The way out that the sentence names.
    ProviderBook(home).remove("lab")
    assert not home.known_hosts.read_text()
    provider = added(home, server)
    assert run(provider.ssh_argv(provider.hosts()[0], "true")).returncode == 0


def test_a_refused_key_is_named_and_the_host_key_is_shown_all_the_same(sshd, tmp_path):
    server = sshd()
    other = keygen(tmp_path / "other")
    result = probe(server.spec, other)
    assert result.error.startswith(f"{server.spec} refused the key {other}: let it in with `ssh-copy-id -i {other}.pub")
    assert f"-p {server.port} {ME}@127.0.0.1`" in result.error
    assert result.fingerprint == shown_by_ssh_keygen(Path(f"{server.host_key}.pub"))


def test_a_key_that_needs_its_passphrase_is_said_so(sshd, tmp_path):
    server = sshd()
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "words words", "-f", str(locked)], check=True)
    result = probe(server.spec, locked)
    assert result.error.startswith(f"{server.spec}")
    assert str(locked) in result.error


@pytest.mark.parametrize(
    ("forced", "sentence"),
    [
        ('env PATH={empty} /bin/sh -c "$SSH_ORIGINAL_COMMAND"', "gives no shell"),
        ("/bin/echo This account is not available.; exit 1", "gives no shell (This account is not available.)"),
        ('PATH={empty}:/bin-none; export PATH; eval "$SSH_ORIGINAL_COMMAND"', "has no python3: install Python 3.8"),
        ('PATH={old}:$PATH; export PATH; eval "$SSH_ORIGINAL_COMMAND"', "has Python 3.6.8; 3.8 or newer is needed"),
    ],
    ids=["no-sh", "no-login", "no-python", "old-python"],
)
def test_a_host_that_cannot_work_says_what_it_lacks(sshd, tmp_path, forced, sentence):
    empty, old = tmp_path / "empty", tmp_path / "old"
    empty.mkdir()
    old.mkdir()
    (old / "python3").write_text("#!/bin/sh\necho Python 3.6.8\n")
    (old / "python3").chmod(0o755)
    if "no python3" in sentence:
        (empty / "sh").symlink_to("/bin/sh")
    server = sshd("ForceCommand " + forced.format(empty=empty, old=old))
    result = probe(server.spec, server.key)
    assert sentence in result.error
    assert result.fingerprint


def test_hosts_that_are_not_there_say_why(sshd):
    server = sshd()
    nobody = free_port()
    good, refused, nameless = probe_all([server.spec, f"127.0.0.1:{nobody}", "no-such-host.invalid"], server.key)
    assert good.error is None
    assert refused.error == (
        f"127.0.0.1:{nobody} refused the connection at port {nobody}:"
        " check that sshd runs there and that the port is right"
    )
    assert nameless.error.startswith("no-such-host.invalid: the name no-such-host.invalid does not resolve")
    assert not refused.fingerprint


def test_only_what_was_confirmed_is_pinned(sshd, home):
    server = sshd()
    result = probe(server.spec, server.key)
    with pytest.raises(UsageProblem, match="confirmed was SHA256:other"):
        confirm([result], {server.spec: "SHA256:other"})
    with pytest.raises(UsageProblem, match="confirmed was none"):
        confirm([result], {})
    bad = probe(f"127.0.0.1:{free_port()}", server.key)
    with pytest.raises(UsageProblem, match="refused the connection"):
        pin(home, [result, bad])
    assert not home.known_hosts.exists()

    pin(home, confirm([result], {server.spec: result.fingerprint}))
    assert home.known_hosts.stat().st_mode & 0o777 == 0o600
    name, *key = home.known_hosts.read_text().split()
    assert name == f"127.0.0.1-{server.port}"
    assert key == Path(f"{server.host_key}.pub").read_text().split()[:2]


def test_the_stream_command_finds_the_client_in_the_home_folder_there(sshd, home):
    """A client home with a blank and shell words in it stays one word, and `~` is the login's home there."""
    server = sshd(f"SetEnv HOME={shlex.quote(str(home.root))}")
    provider = added(home, server, client_home="~/clients/a $(touch x) 'b'")
    folder = home.root / "clients" / "a $(touch x) 'b'"
    folder.mkdir(parents=True)
    (folder / "monkey-client.pyz").write_text("import sys; print(sys.argv[1:])\n")
    done = run(provider.stream_argv(provider.hosts()[0]))
    assert done.stdout.strip() == repr(["stream", "--home", str(folder)]), done.stderr
    assert not list(home.root.rglob("x"))
