"""providers.yml: what is written comes back, what is wrong is named, and nothing is changed by a mistake."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from monkey.errors import UsageProblem
from monkey.paths import Home
from monkey.providers import HostEntry, ProviderBook, core_id, kinds, stream_argv
from monkey.providers.pins import fingerprint, key_type, pinned_lines, remove_pins, replace_pins

ANSIBLE_INVENTORY = Path(sys.executable).parent / "ansible-inventory"
KEY_A = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxQwF4jN6zBVTWaaLkLoo5gGf5YWrkyc4m0w9zPQmsp"
KEY_B = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA0YRFlkiS5mSrJ6kWkIG7GQHn5EfBMEC1yPWiYzQDSR"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def book(home):
    return ProviderBook(home)


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "id"
    path.touch(mode=0o600)
    return str(path)


def everything(home) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in home.root.rglob("*") if p.is_file()}


def test_local_is_there_without_a_file(book, home):
    assert book.names() == ["local"]
    local = book.get("local")
    assert local.hosts() == [HostEntry("localhost", "localhost", client_home=str(home.client))]
    assert stream_argv(local, local.hosts()[0]) == [
        sys.executable, f"{home.client}/monkey-client.pyz", "stream", "--home", str(home.client),
    ]  # fmt: skip
    assert not home.providers.exists()


def test_a_machine_that_two_providers_name_has_a_client_for_each(book, home):
    # One journal read by two streams: each would acknowledge events that only the other knows what to do with.
    book.add("lab", "ssh", hosts=["gpu1", "gpu2"])
    book.add("far", "ssh", hosts=["gpu1"])
    homes = [host.client_home for name in ("lab", "far") for host in book.get(name).hosts()]
    assert len(set(homes)) == 3
    assert all(one.startswith(f"~/.monkey-client/{core_id(home)}-") for one in homes)


def test_what_is_added_comes_back(book, home, key):
    book.add("lab", "ssh", hosts=["ada@10.0.0.2:22", "gpu1", "[fd00::1]:2222"], key_file=key, slots=2)
    other = ProviderBook(home)
    assert other.names() == ["local", "lab"]
    client_home = f"~/.monkey-client/{core_id(home)}-lab"
    assert other.get("lab").hosts() == [
        HostEntry("10.0.0.2", "10.0.0.2", "ada", 22, 2, f"{client_home}-10.0.0.2"),
        HostEntry("gpu1", "gpu1", None, None, 2, f"{client_home}-gpu1"),
        HostEntry("fd00--1-2222", "fd00::1", None, 2222, 2, f"{client_home}-fd00--1-2222"),
    ]
    assert yaml.safe_load(home.providers.read_text()) == {
        "providers": [
            {
                "name": "lab",
                "type": "ssh",
                "hosts": ["ada@10.0.0.2:22", "gpu1", "[fd00::1]:2222"],
                "key_file": key,
                "slots": 2,
            }
        ]
    }
    assert home.providers.stat().st_mode & 0o777 == 0o600
    assert home.inventory("lab").stat().st_mode & 0o777 == 0o600


def test_an_entry_written_by_hand_counts_at_once(book, home):
    home.providers.write_text(
        "providers:\n- name: local\n  type: local\n  slots: 1\n"
        "- {name: lab, type: ssh, hosts: [a, b], slots: 4, host_slots: {b: 1}, client_home: /scratch/monkey/}\n"
    )
    assert book.get("local").hosts()[0].slots == 1
    assert [(h.slots, h.client_home) for h in book.get("lab").hosts()] == [
        (4, "/scratch/monkey"),
        (1, "/scratch/monkey"),
    ]


def test_removing_takes_the_inventory_and_the_pins_that_nobody_else_needs(book, home):
    book.add("lab", "ssh", hosts=["gpu1", "gpu2"])
    book.add("ours", "ssh", hosts=["ada@gpu2"])
    replace_pins(home.known_hosts, [f"gpu1 {KEY_A}", f"gpu2 {KEY_A}"])
    book.remove("lab")
    assert book.names() == ["local", "ours"]
    assert not home.inventory("lab").exists()
    assert home.known_hosts.read_text() == f"gpu2 {KEY_A}\n"


def test_unknown_and_fixed_names(book):
    book.add("lab", "ssh", hosts=["gpu1", "gpu2"])
    with pytest.raises(UsageProblem, match=r"unknown provider 'lba'; did you mean lab\?"):
        book.get("lba")
    with pytest.raises(UsageProblem, match="unknown provider 'zzz'; there are local, lab"):
        book.remove("zzz")
    with pytest.raises(UsageProblem, match="cannot be removed"):
        book.remove("local")
    with pytest.raises(UsageProblem, match="no host 'gpu3'; did you mean gpu"):
        book.get("lab").host("gpu3")


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ({"name": "a b"}, "name", "A-Z a-z 0-9"),
        ({"name": "../x"}, "name", "A-Z a-z 0-9"),
        ({"name": "local"}, "name", "is there already"),
        ({"name": "THERE"}, "name", "provider there is there already"),
        ({"kind": "shh"}, "type", "did you mean ssh?"),
        ({"kind": "zzz"}, "type", "expected one of local, ssh"),
        ({"hosts": []}, "hosts", "at least 1 item"),
        ({"hosts": ["ok", "gpu1:port"]}, "hosts.1", "the port is not a number"),
        ({"hosts": ["gpu1", "ada@GPU1:22"]}, "hosts", "are the same machine"),
        ({"hosts": "gpu1"}, "hosts", "valid list"),
        ({"slots": 0}, "slots", "greater than or equal to 1"),
        ({"slots": True}, "slots", "valid integer"),
        ({"slots": "2"}, "slots", "valid integer"),
        ({"slot": 2}, "slot", "did you mean slots?"),
        ({"key_file": "/not/there"}, "key_file", "/not/there is not there"),
        ({"ssh_config": "/not/there"}, "ssh_config", "/not/there is not there"),
        ({"client_home": "relative"}, "client_home", "expected an absolute path"),
        ({"host_slots": {"gpu9": 1}}, "host_slots", "'gpu9' is none of the hosts"),
    ],
)
def test_a_wrong_provider_is_named_and_changes_nothing(book, home, arguments, field, words):
    book.add("there", "ssh", hosts=["gpu0"])
    before = everything(home)
    with pytest.raises(UsageProblem) as refused:
        book.add(**{"name": "lab", "kind": "ssh", "hosts": ["gpu1"], **arguments})
    assert refused.value.field == field
    assert words in refused.value.message
    assert "\n" not in str(refused.value)
    assert everything(home) == before


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("providers:\n  - name: a\n   type: ssh\n", "providers.yml:3:4", ""),
        ("- a\n", "providers.yml", "expected `providers:`"),
        ("provider: []\n", "providers.yml: provider", "did you mean providers?"),
        ("providers: [3]\n", "providers.yml: providers", "a list of entries"),
        (
            "providers: [{name: lab, type: ssh, hosts: [a], slotz: 2}]\n",
            "providers.yml: lab.slotz",
            "did you mean slots?",
        ),
        ("providers: [{name: lab, type: ssh, hosts: [a], 7: 2}]\n", "providers.yml: lab.7", "unknown key '7'"),
        ("providers: [{name: lab, type: ssh, hosts: ['a b']}]\n", "providers.yml: lab.hosts.0", "is not one"),
        ("providers: [{name: lab, type: ssh}]\n", "providers.yml: lab.hosts", "required"),
        ("providers: [{name: lab, hosts: [a]}]\n", "providers.yml: lab.type", "expected one of local, ssh"),
        ("providers: [{type: local}]\n", "providers.yml: providers[0].name", "expected a name"),
        ("providers: [{name: local, type: ssh, hosts: [a]}]\n", "providers.yml: local.type", "expected local"),
        ("providers: [{name: a, type: local}, {name: a, type: local}]\n", "providers.yml: a.name", "twice"),
        ("providers: !!python/object:os.system x\n", "providers.yml:1:12", "constructor"),
    ],
)
def test_a_broken_file_is_named_with_its_key_or_line(book, home, text, field, words):
    home.providers.write_text(text)
    with pytest.raises(UsageProblem) as refused:
        book.names()
    assert refused.value.field == field
    assert words in refused.value.message


def test_the_inventory_is_what_ansible_sees(book, home, tmp_path):
    """Paths with template and shell words in them are text to Ansible."""
    folder = tmp_path / "{{ 1 + 1 }} it's"
    folder.mkdir()
    key = folder / "id"
    key.touch(mode=0o600)
    provider = book.add(
        "lab", "ssh", hosts=["ada@10.0.0.2:2222", "gpu1"], key_file=str(key), host_slots={"gpu1": 3},
        client_home="~/{{ 7 * 7 }}",
    )  # fmt: skip
    seen = yaml.safe_load(
        subprocess.run(
            [str(ANSIBLE_INVENTORY), "-i", str(provider.write_inventory()), "--list"],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "ansible")},
            cwd=tmp_path,
        ).stdout
    )["_meta"]["hostvars"]

    def plain(value):
        return value["__ansible_unsafe"] if isinstance(value, dict) else value

    one, two = ({k: plain(v) for k, v in seen[name].items()} for name in ("10.0.0.2-2222", "gpu1"))
    assert (one["ansible_host"], one["ansible_user"], one["ansible_port"]) == ("10.0.0.2", "ada", 2222)
    assert two["ansible_host"] == "gpu1"
    assert "ansible_user" not in two and "ansible_port" not in two
    assert one["ansible_ssh_private_key_file"] == two["ansible_ssh_private_key_file"] == str(key)
    assert one["monkey_client_home"] == "~/{{ 7 * 7 }}"
    assert "monkey_max_jobs" not in one
    assert two["monkey_max_jobs"] == 3
    assert "HostKeyAlias=10.0.0.2-2222" in one["ansible_ssh_common_args"]
    assert f"{home.known_hosts}" in two["ansible_ssh_common_args"]


def test_unsafe_text_stays_text_in_a_playbook(book, home, tmp_path):
    """What the inventory marks as text is not evaluated when a task uses it (local connection: nothing is reached)."""
    home = Home(tmp_path / "{{ 6 * 7 }}")
    home.create()
    inventory = ProviderBook(home).get("local").write_inventory()
    done = subprocess.run(
        [str(ANSIBLE_INVENTORY.with_name("ansible")), "all", "-i", str(inventory), "-m", "ansible.builtin.command",
         "-a", "echo '{{ monkey_client_home }}'"],
        check=True, capture_output=True, text=True,
        env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "ansible")}, cwd=tmp_path,
    )  # fmt: skip
    assert str(home.client) in done.stdout


def test_a_main_node_has_one_id_however_many_ask_at_once(home):
    found = set()
    threads = [threading.Thread(target=lambda: found.add(core_id(home))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {home.core_id.read_text().strip()}
    assert [p.name for p in home.root.iterdir() if p.name.startswith(".core_id")] == []
    home.core_id.write_text("a/b\n")
    with pytest.raises(UsageProblem, match="does not hold an id"):
        core_id(home)


@pytest.mark.parametrize("writes", [0, 1])
def test_a_full_disk_leaves_the_book_as_it_was(book, home, monkeypatch, writes):
    book.add("lab", "ssh", hosts=["gpu1"])
    before = everything(home)
    done = []

    def full(_descriptor):
        done.append(1)
        if len(done) > writes:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        book.add("lab2", "ssh", hosts=["gpu2"])
    assert everything(home) == before


def test_pins_are_replaced_by_name_and_removed_by_name(home):
    replace_pins(home.known_hosts, [f"gpu1 {KEY_A}", f"gpu2 {KEY_A}"])
    replace_pins(home.known_hosts, [f"gpu1 {KEY_B}"])
    assert pinned_lines(home.known_hosts, "gpu1") == [f"gpu1 {KEY_B}"]
    assert pinned_lines(home.known_hosts, "gpu") == []
    remove_pins(home.known_hosts, ["gpu1"])
    assert home.known_hosts.read_text() == f"gpu2 {KEY_A}\n"


@pytest.mark.parametrize(("kind", "word"), [("ed25519", "ED25519"), ("ecdsa", "ECDSA"), ("rsa", "RSA")])
def test_fingerprints_are_those_of_ssh_keygen(tmp_path, kind, word):
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / "k")], check=True)
    public = (tmp_path / "k.pub").read_text()
    out = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "k.pub")], check=True, capture_output=True, text=True)
    assert fingerprint(f"host {public}") == out.stdout.split()[1]
    assert key_type(f"host {public}") == word == out.stdout.split()[-1].strip("()")
    assert fingerprint("no line") == key_type("no line") == ""


def test_every_kind_has_its_own_module_and_name():
    assert {"local", "ssh"} <= set(kinds())
    for name, kind in kinds().items():
        assert kind.kind == name
        assert kind.__module__ == f"monkey.providers.kinds.{name}"
