"""sync, snapshot and collect through real ansible-playbook runs on this machine."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.blobs import MonkeyFS
from hostpool import Host

REPOSITORY = Path(__file__).resolve().parents[2]
JUID = "26-11-21-001"


class Ground:
    """A control machine and one or more hosts, all in a temporary folder."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.code = top / "code"
        self.fs = MonkeyFS(top / "monkeyfs")
        self.home = top / "client home"
        self.store = MonkeyFS(self.home / "store")
        self.runs = 0
        self.connection = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
        self.code.mkdir()

    def play(
        self, tasks: list[dict[str, Any]], *options: str, hosts: tuple[str, ...] = ("here",), ok: bool = True
    ) -> Any:
        """Runs tasks, registered as r0, r1, …: their results, for several hosts by host."""
        self.runs += 1
        dump = self.top / f"out-{self.runs}"
        dump.mkdir()
        listed = [{**task, "register": f"r{number}", "ignore_errors": True} for number, task in enumerate(tasks)]
        names = ", ".join(f"r{number}" for number in range(len(tasks)))
        # Written by the control machine, whatever the host is.
        content = {"content": f"{{{{ [{names}] | to_json }}}}", "dest": f"{dump}/{{{{ inventory_hostname }}}}"}
        here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        copy = {"ansible.builtin.copy": content, "check_mode": False, "diff": False, "delegate_to": "localhost"}
        listed.append({**copy, "vars": here})
        play = [{"hosts": "all", "gather_facts": False, "tasks": listed}]
        playbook = self.top / f"play-{self.runs}.yml"
        playbook.write_text(json.dumps(play))
        inventory = self.top / "hosts.ini"
        inventory.write_text("".join(f"{host} {self.connection}\n" for host in hosts))
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.top),
            "LANG": "C.UTF-8",
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "collections"),
            "ANSIBLE_LOCAL_TEMP": str(self.top / "ansible-local"),
            "ANSIBLE_REMOTE_TEMP": str(self.top / "ansible-remote"),
        }
        done = subprocess.run(
            ["ansible-playbook", "-i", str(inventory), str(playbook), *options],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        results = {host: json.loads((dump / host).read_text()) for host in hosts}
        for host in hosts:
            for result in results[host]:
                assert ok is not result.get("failed", False), result
        return results if len(hosts) > 1 else results[hosts[0]]

    def snapshot(self, **more: Any) -> dict[str, Any]:
        return {"monkey.runner.snapshot": {"path": str(self.code), "monkeyfs": self.fs.root, **more}}

    def sync(self, tree: str = "{{ r0.tree }}", **more: Any) -> dict[str, Any]:
        return {"monkey.runner.sync": {"home": str(self.home), "monkeyfs": self.fs.root, "trees": [tree], **more}}

    def collect(self, **more: Any) -> dict[str, Any]:
        persist = [{"name": "out", "path": "output"}, {"name": "none", "path": "never/made"}]
        attempts = [{"juid": JUID, "attempt": 1, "persist": persist}]
        options = {"home": str(self.home), "monkeyfs": self.fs.root, "attempts": attempts, **more}
        return {"monkey.runner.collect": options}

    def attempt(self) -> Path:
        folder = self.home / "attempts" / f"{JUID}.1"
        (folder / "work" / "output" / "deep").mkdir(parents=True)
        (folder / "log").write_text("epoch 1\n")
        (folder / "work" / "output" / "a.txt").write_text("alpha")
        (folder / "work" / "output" / "deep" / "b.bin").write_bytes(bytes(range(256)) * 40)
        return folder


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_first_sync_sends_all_second_nothing_and_a_changed_file_only_itself(ground: Ground) -> None:
    for number in range(20):
        (ground.code / f"f{number}.py").write_text(f"print({number})\n" * 50)
    (ground.code / "train.py").write_text("v1 -----\n")
    total = sum(path.stat().st_size for path in ground.code.iterdir())
    progress = ground.top / "progress"

    first, sent, again = ground.play(
        [ground.snapshot(), ground.sync(progress_file=str(progress)), ground.sync(progress_file=str(progress))]
    )
    assert (first["changed"], first["files"], first["size_bytes"]) == (True, 21, total)
    assert (sent["changed"], sent["sent_files"], sent["sent_bytes"]) == (True, 21, total)
    assert sent["trees"] == {first["tree"]: {"sent_files": 21, "sent_bytes": total}}
    assert (again["changed"], again["sent_files"], again["sent_bytes"]) == (False, 0, 0)
    lines = [json.loads(line) for line in progress.read_text().splitlines()]
    told = [(line["sent_bytes"], line["total_bytes"], line["files"]) for line in lines]
    assert told == [(0, total, 0), (total, total, 21)]
    trees.materialise(ground.store, ground.store.get_tree(first["tree"]), ground.top / "written")
    assert files_below(ground.top / "written") == files_below(ground.code)

    (ground.code / "train.py").write_text("version two is longer\n")
    second, sent = ground.play([ground.snapshot(), ground.sync()])
    assert second["tree"] != first["tree"]
    assert (sent["sent_files"], sent["sent_bytes"]) == (1, len("version two is longer\n"))
    assert os.listdir(ground.fs.root + "/tmp") == os.listdir(ground.store.root + "/tmp") == []


def test_a_new_name_for_known_content_sends_no_content_but_arrives(ground: Ground) -> None:
    (ground.code / "old.py").write_text("x = 1\n")
    ground.play([ground.snapshot(), ground.sync()])
    (ground.code / "old.py").rename(ground.code / "new.py")
    taken, sent = ground.play([ground.snapshot(), ground.sync()])
    assert (sent["changed"], sent["sent_files"], sent["sent_bytes"]) == (True, 0, 0)
    assert ground.store.get_tree(taken["tree"])["entries"][0]["path"] == "new.py"


def test_check_mode_tells_and_changes_nothing_and_diff_names_the_files(ground: Ground) -> None:
    (ground.code / "a.py").write_text("x = 1\n")
    (ground.code / "skip.ckpt").write_text("large")
    (taken,) = ground.play([ground.snapshot(ignore=["*.ckpt"])], "--check")
    assert (taken["changed"], taken["files"]) == (True, 1)
    assert not Path(ground.fs.root).exists()
    (real,) = ground.play([ground.snapshot(ignore=["*.ckpt"])])
    assert real["tree"] == taken["tree"]
    (sent,) = ground.play([ground.sync(real["tree"])], "--check", "--diff")
    assert (sent["changed"], sent["sent_files"], sent["sent_bytes"]) == (True, 1, 6)
    assert "a.py" in sent["diff"][0]["prepared"]
    assert not Path(ground.store.root).exists()


def test_more_blobs_than_fit_the_question_and_blobs_larger_than_a_pack(ground: Ground) -> None:
    for number in range(2100):
        (ground.code / f"f{number}").write_text(str(number))
    block = bytes(range(256)) * 4096
    with open(ground.code / "large.bin", "wb") as file:
        for number in range(66):
            file.write(block[number:] + block[:number])
    progress = ground.top / "progress"
    taken, sent = ground.play([ground.snapshot(), ground.sync(progress_file=str(progress))])
    assert (sent["sent_files"], sent["sent_bytes"]) == (2101, taken["size_bytes"])
    assert ground.store.missing(trees.blobs_of(ground.fs.get_tree(taken["tree"]))) == []
    done = [json.loads(line) for line in progress.read_text().splitlines()]
    large = 66 * len(block)
    assert [line["files"] for line in done] == [0, 0, 1, 2101]
    # The large file comes in parts, so that who watches sees the bytes move.
    assert [line["sent_bytes"] for line in done] == [0, 64_000_000, large, taken["size_bytes"]]
    assert os.listdir(ground.store.root + "/tmp") == []


def test_hosts_of_one_play_do_not_disturb_each_other(ground: Ground) -> None:
    for number in range(30):
        (ground.code / f"f{number}").write_text(str(number) * 100)
    (taken,) = ground.play([ground.snapshot()])
    hosts = ("h1", "h2", "h3")
    results = ground.play([ground.sync(taken["tree"], home=str(ground.top / "{{ inventory_hostname }}"))], hosts=hosts)
    for host in hosts:
        assert results[host][0]["sent_files"] == 30
        assert MonkeyFS(ground.top / host / "store").has_tree(taken["tree"])


def test_a_damaged_blob_on_the_host_is_sent_again(ground: Ground) -> None:
    (ground.code / "a.py").write_text("x = 1\n")
    taken, _sent = ground.play([ground.snapshot(), ground.sync()])
    (sha,) = trees.blobs_of(ground.fs.get_tree(taken["tree"]))
    Path(ground.store.blob_path(sha)).unlink()
    Path(ground.store.blob_path(sha)).write_text("x")
    (sent,) = ground.play([ground.sync(taken["tree"])])
    assert sent["sent_files"] == 1
    assert Path(ground.store.blob_path(sha)).read_text() == "x = 1\n"


def test_an_unknown_tree_and_a_refused_folder_fail_with_one_sentence(ground: Ground) -> None:
    os.symlink("/etc/passwd", ground.code / "bad-link")
    refused, unknown = ground.play([ground.snapshot(), ground.sync("0" * 64)], ok=False)
    assert "bad-link: this link leaves the folder (-> /etc/passwd)" in refused["msg"]
    assert f"no tree {'0' * 64}" in unknown["msg"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_fails_naming_path_needed_and_free_bytes(ground: Ground, small_disk: Path) -> None:
    (ground.code / "big.bin").write_bytes(os.urandom(3_000_000))
    home = small_disk / "home"
    _taken, sent = play_failing(ground, [ground.snapshot(), ground.sync(home=str(home))])
    assert "disk is full" in sent["msg"] and f"{home}/store" in sent["msg"]
    assert "needs 3008192 bytes" in sent["msg"] and "are free" in sent["msg"]
    assert not home.exists()


def play_failing(ground: Ground, tasks: list[dict[str, Any]]) -> Any:
    """All tasks but the last must work."""
    good = ground.play(tasks[:-1])
    tree = good[0].get("tree", "")
    last = json.loads(json.dumps(tasks[-1]).replace("{{ r0.tree }}", tree))
    return [*good, *ground.play([last], ok=False)]


def test_collect_twice_fetches_once_and_writes_folders_and_log(ground: Ground) -> None:
    ground.attempt()
    dest = ground.top / "results"
    first, second = ground.play([ground.collect(dest=str(dest)), ground.collect(dest=str(dest))])
    out, none = first["attempts"][0]["persist"]
    size = len("alpha") + 256 * 40
    assert (first["changed"], first["sent_bytes"]) == (True, size + len("epoch 1\n"))
    assert (out["name"], out["path"], out["files"], out["size_bytes"], out["skipped"]) == ("out", "output", 2, size, [])
    assert (none["files"], none["tree"]) == (0, trees.tree_id({"entries": []}))
    assert ground.fs.get_tree(out["tree"])["entries"][1]["path"] == "deep/b.bin"
    assert (second["changed"], second["sent_bytes"]) == (False, 0)
    written = files_below(dest / JUID)
    assert set(written) == {"log", "output/a.txt", "output/deep/b.bin"}
    assert (written["log"], written["output/a.txt"]) == (b"epoch 1\n", b"alpha")
    assert os.listdir(ground.fs.root + "/tmp") == []


def test_collect_in_check_mode_writes_nothing(ground: Ground) -> None:
    folder = ground.attempt()
    (found,) = ground.play([ground.collect(dest=str(ground.top / "results"))], "--check")
    assert (found["changed"], found["sent_bytes"]) == (True, 5 + 256 * 40 + 8)
    assert not Path(ground.fs.root).exists() and not (ground.top / "results").exists()
    assert sorted(os.listdir(folder)) == ["log", "work"]


def test_a_changed_result_fetches_only_what_changed(ground: Ground) -> None:
    folder = ground.attempt()
    ground.play([ground.collect()])
    (folder / "work" / "output" / "a.txt").write_text("alpha and beta")
    (found,) = ground.play([ground.collect()])
    assert found["sent_bytes"] == len("alpha and beta")


def test_collect_while_the_job_writes_takes_what_is_consistent(ground: Ground) -> None:
    folder = ground.attempt()
    stop = threading.Event()

    def write(path: Path, change: Callable[[Path, int], None]) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            change(path, number)
            time.sleep(0.0005)

    def append(path: Path, number: int) -> None:
        with open(path, "a") as file:
            file.write(f"line {number}\n")

    log = threading.Thread(target=write, args=(folder / "log", append))
    losses = threading.Thread(target=write, args=(folder / "work" / "output" / "losses.csv", append))
    log.start()
    losses.start()
    try:
        (found,) = ground.play([ground.collect(dest=str(ground.top / "results"))])
    finally:
        stop.set()
        log.join()
        losses.join()
    assert found["attempts"][0]["persist"][0]["skipped"] == []
    got = files_below(ground.top / "results" / JUID)
    for name, source in (("log", folder / "log"), ("output/losses.csv", folder / "work" / "output" / "losses.csv")):
        assert got[name] and source.read_bytes().startswith(got[name])


def test_what_a_job_puts_in_the_way_is_named_and_left_out(ground: Ground) -> None:
    folder = ground.attempt()
    output = folder / "work" / "output"
    os.symlink("/etc/passwd", output / "secret")
    os.mkfifo(output / "pipe")
    (found,) = ground.play([ground.collect()])
    item = found["attempts"][0]["persist"][0]
    assert item["files"] == 2
    assert sorted(skip["path"] for skip in item["skipped"]) == ["pipe", "secret"]

    shutil.rmtree(output)
    outside = ground.top / "outside"
    outside.mkdir()
    (outside / "private").write_text("private")
    output.symlink_to(outside)
    (refused,) = ground.play([ground.collect()], ok=False)
    assert "output is not a folder, or a link leads there" in refused["msg"]


def test_an_attempt_that_the_host_does_not_know_fails_but_the_others_are_collected(ground: Ground) -> None:
    ground.attempt()
    attempts = [
        {"juid": JUID, "attempt": 2, "persist": []},
        {"juid": JUID, "attempt": 1, "persist": [{"name": "out", "path": "output"}]},
    ]
    (found,) = ground.play([ground.collect(attempts=attempts)], ok=False)
    assert found["msg"].endswith(f"no attempt {JUID}.2")
    assert [item["attempt"] for item in found["attempts"]] == [1]
    assert ground.fs.has_tree(found["attempts"][0]["persist"][0]["tree"])


def test_a_result_larger_than_a_pack_comes_in_parts(ground: Ground) -> None:
    folder = ground.attempt()
    block = bytes(range(256)) * 4096
    with open(folder / "work" / "output" / "model.bin", "wb") as file:
        for number in range(66):
            file.write(block[number:] + block[:number])
    (found,) = ground.play([ground.collect(dest=str(ground.top / "results"))])
    assert found["sent_bytes"] > 66 << 20
    written = ground.top / "results" / JUID / "output" / "model.bin"
    assert written.read_bytes() == (folder / "work" / "output" / "model.bin").read_bytes()


def connect(ground: Ground, host: Host, user: str, **more: str) -> None:
    options = [
        "-F none -o ControlPath=none -o IdentitiesOnly=yes",
        f"-o UserKnownHostsFile={host.known_hosts} -o StrictHostKeyChecking=yes",
    ]
    variables = {
        "ansible_host": host.address,
        "ansible_port": str(host.port),
        "ansible_user": user,
        "ansible_ssh_private_key_file": str(host.key_file),
        "ansible_ssh_common_args": " ".join(options),
        "ansible_ssh_args": "",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_remote_tmp": "~/.ansible/tmp",
        **more,
    }
    ground.connection = " ".join(f"{key}={shlex.quote(value)}" for key, value in variables.items())


# Who logs in, and whom the tasks become: nobody else, or the unprivileged owner of the client by way of root.
@pytest.mark.hosts
@pytest.mark.parametrize("become", [False, True], ids=["unprivileged", "root-becomes-unprivileged"])
def test_there_and_back_over_ssh(ground: Ground, bare_host: Host, become: bool) -> None:
    for number in range(50):
        (ground.code / f"f{number}").write_text(str(number) * 10)
    if become:
        connect(
            ground,
            bare_host,
            "root",
            ansible_become="true",
            ansible_become_user=bare_host.user,
            ansible_become_method="su",
        )
    else:
        connect(ground, bare_host, bare_host.user)
    name = f".monkey-client/{secrets.token_hex(4)}"
    home = f"~/{name}"
    try:
        taken, sent, again = ground.play([ground.snapshot(), ground.sync(home=home), ground.sync(home=home)])
        assert (sent["sent_files"], sent["sent_bytes"], again["changed"]) == (50, taken["size_bytes"], False)
        output = f"{name}/attempts/{JUID}.1/work/output"
        script = f"cd && mkdir -p {output} && echo result > {output}/r.txt && echo hello > {output}/../../log && pwd"
        place = bare_host.ssh(["sh", "-c", script]).stdout.strip()
        (found,) = ground.play([ground.collect(home=home, dest=str(ground.top / "results"))])
        assert found["sent_bytes"] == len("result\nhello\n")
        assert files_below(ground.top / "results" / JUID) == {"log": b"hello\n", "output/r.txt": b"result\n"}
        look = f"cd {place}/{name} && find . ! -user {bare_host.user}; ls store/tmp"
        assert bare_host.ssh(["sh", "-c", look]).stdout == "", "all belongs to the client's user, nothing is left over"
    finally:
        bare_host.ssh(["sh", "-c", f"cd && chmod -R u+w {name} && rm -rf {name}"], check=False)


@pytest.mark.hosts
def test_one_unprivileged_user_becomes_another(ground: Ground, fresh_host: Host) -> None:
    """Then the connection may read nothing that the module writes: results come through the module's answers."""
    (ground.code / "a.py").write_text("x = 1\n")
    rule = fresh_host.root / "etc" / "sudoers.d" / "test"
    rule.write_text(f"{fresh_host.user} ALL=(daemon) NOPASSWD: ALL\n")
    rule.chmod(0o440)
    connect(
        ground,
        fresh_host,
        fresh_host.user,
        ansible_become="true",
        ansible_become_user="daemon",
        ansible_become_method="sudo",
        ansible_shell_allow_world_readable_temp="true",
    )
    home = "/var/tmp/client"
    _taken, sent = ground.play([ground.snapshot(), ground.sync(home=home)])
    assert sent["sent_files"] == 1
    folder = fresh_host.root / "var/tmp/client/attempts" / f"{JUID}.1"
    (folder / "work/output").mkdir(parents=True)
    content = os.urandom(5_000_000)
    (folder / "work/output/r.bin").write_bytes(content)
    (folder / "log").write_text("hello\n")
    (found,) = ground.play([ground.collect(home=home, dest=str(ground.top / "results"))])
    assert found["sent_bytes"] == 5_000_006
    assert files_below(ground.top / "results" / JUID) == {"log": b"hello\n", "output/r.bin": content}
    left = fresh_host.ssh(["sh", "-c", "ls -d /tmp/monkey-* /var/tmp/monkey-*"], check=False).stdout
    assert left == ""


_REWRITE = """
import os, sys, time
folder, by_rename = sys.argv[1], sys.argv[2] == "rename"
number = 0
while True:
    number += 1
    path = os.path.join(folder, "replaced" if by_rename else "rewritten")
    with open(path + ".new" if by_rename else path, "w") as file:
        file.write("%d\\n" % number * 1000)
    if by_rename:
        os.rename(path + ".new", path)
    time.sleep(0.05)
"""


@pytest.fixture
def busy_files(ground: Ground) -> Iterator[Path]:
    """A persisted folder where processes write two files again and again, in place and by rename."""
    output = ground.attempt() / "work" / "output"
    writers = [
        subprocess.Popen([sys.executable, "-c", _REWRITE, str(output), how]) for how in ("in-place", "rename")
    ]
    try:
        while not ((output / "rewritten").exists() and (output / "replaced").exists()):
            time.sleep(0.01)
        yield output
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()


def test_files_that_the_job_rewrites_all_the_time_come_back_whole(ground: Ground, busy_files: Path) -> None:
    task = ground.collect(dest=str(ground.top / "results"))
    numbers: dict[str, list[int]] = {"rewritten": [], "replaced": []}
    # What a run that was cut off has left.
    left = busy_files.parents[1] / "collect"
    left.mkdir()
    (left / "leftover").write_text("x")
    for _turn in range(2):
        (found,) = ground.play([task])
        (out, _none) = found["attempts"][0]["persist"]
        assert [skip for skip in out["skipped"] if skip["path"] != "replaced.new"] == []
        got = files_below(ground.top / "results" / JUID)
        for name, seen in numbers.items():
            lines = got[f"output/{name}"].decode().splitlines()
            assert len(lines) == 1000 and len(set(lines)) == 1, f"{name} is not what was written at one moment"
            seen.append(int(lines[0]))
        assert not left.exists(), "the copies are gone, and those of a run that was cut off"
    assert all(first < second for first, second in numbers.values()), "the second collect brings newer content"
