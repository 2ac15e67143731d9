"""Journal, spec, slots, bundle and processes, each alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.client import bundle, machine
from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt, accept
from ansible_collections.monkey.runner.plugins.module_utils.client.files import ClientError
from ansible_collections.monkey.runner.plugins.module_utils.client.journal import Journal
from ansible_collections.monkey.runner.plugins.module_utils.client.processes import alive, identity, send
from ansible_collections.monkey.runner.plugins.module_utils.client.slots import Slots
from ansible_collections.monkey.runner.plugins.module_utils.client.spec import check_slots, check_spec


def seqs(journal: Journal) -> list[int]:
    return [event["seq"] for event in journal.after(0, 10_000)]


def test_journal_keeps_order_and_numbers_over_a_reopen(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append([{"a": 1}, {"a": 2}])
    journal.append([{"a": 3}])
    journal.ack(1)
    again = Journal(str(tmp_path))
    assert (again.acked, again.last_seq, again.id) == (1, 3, journal.id)
    assert [event["a"] for event in again.after(0)] == [2, 3]
    assert seqs(again) == [2, 3]
    assert [event["seq"] for event in again.after(2)] == [3]


@pytest.mark.parametrize("cut", range(1, 24, 4))
def test_torn_tail_is_dropped_and_the_rest_stays(tmp_path: Path, cut: int) -> None:
    journal = Journal(str(tmp_path))
    journal.append([{"a": 1}])
    journal.append([{"a": 2}])
    events = tmp_path / "events"
    events.write_bytes(events.read_bytes()[:-cut])
    again = Journal(str(tmp_path))
    assert seqs(again) == [1]
    again.append([{"a": 3}])
    assert [(event["seq"], event["a"]) for event in Journal(str(tmp_path)).after(0)] == [(1, 1), (2, 3)]


def test_damage_in_the_middle_loses_that_event_alone(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    for number in range(3):
        journal.append([{"a": number}])
    events = tmp_path / "events"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(lines[0] + b"#" + lines[1][1:] + lines[2])
    assert seqs(Journal(str(tmp_path))) == [1, 3]


def test_numbers_go_on_after_everything_was_acknowledged(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append([{"a": 1}, {"a": 2}])
    journal.ack(99)  # unknown
    assert journal.acked == 0
    journal.ack(2)
    assert (tmp_path / "events").stat().st_size == 0
    again = Journal(str(tmp_path))
    assert again.append([{"a": 3}])[0]["seq"] == 3


def test_long_journal_is_cut_while_some_are_unacknowledged(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append([{"text": "x" * 1000} for _ in range(400)])
    journal.ack(399)
    assert (tmp_path / "events").stat().st_size < 2000
    assert seqs(Journal(str(tmp_path))) == [400]


def good(**more: Any) -> dict[str, Any]:
    return {"juid": "26-11-21-001", "attempt": 1, "command": ["true"], **more}


def test_spec_gets_its_defaults() -> None:
    spec = check_spec(good())
    assert (spec["grace_s"], spec["log_quota_mb"], spec["time_limit_s"], spec["lease_s"]) == (10.0, 1024.0, None, None)
    assert spec["resources"] == {"cpus": 1.0, "gpus": 0, "memory_mb": None}
    assert spec["environment"] == {"kind": "none"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"juid": "../x"}, "juid"),
        ({"juid": ".x"}, "juid"),
        ({"juid": "a" * 65}, "juid"),
        ({"attempt": 0}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"command": []}, "command"),
        ({"command": "ls -l"}, "command: expected a list"),
        ({"command": ["a\0b"]}, r"command\[0\]"),
        ({"code": "abc"}, "code"),
        ({"data": [{"name": "d", "path": "../d", "tree": "0" * 64}]}, r"data\[0\].path"),
        ({"data": [{"name": "d", "path": "/d", "tree": "0" * 64}]}, r"data\[0\].path"),
        ({"data": [{"name": "d", "path": "d"}]}, r"data\[0\].tree"),
        ({"persist": [{"name": "o", "path": "a//b", "tree": None}]}, r"persist\[0\].path"),
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": 1}}, "env.A"),
        ({"environment": {"kind": "venv"}}, "environment.kind"),
        ({"environment": {"kind": "docker", "engine": "docker", "image": "--privileged"}}, "environment.image"),
        ({"resources": {"cpus": -1}}, "resources.cpus"),
        ({"resources": {"gpus": 0.5}}, "resources.gpus"),
        ({"time_limit_s": 0}, "time_limit_s"),
        ({"time_limit_s": "1h"}, "time_limit_s"),
        ({"grace_s": -1}, "grace_s"),
        ({"lease_s": float("nan")}, "lease_s"),
        ({"time_limit": 5}, "unknown key 'time_limit'"),
    ],
)
def test_bad_spec_is_refused_with_its_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        check_spec(good(**change))


def test_bad_slots_are_refused() -> None:
    for slots in ({"cpu": 1}, {"max_jobs": 0}, {"cpus": -1}, [1]):
        with pytest.raises(ClientError, match="slots"):
            check_slots(slots)


def test_slots_count_fractions_memory_and_jobs() -> None:
    slots = Slots({"cpus": 1, "gpus": 0, "memory_mb": 1000, "max_jobs": 20})
    wanted = {"cpus": 0.1, "gpus": 0, "memory_mb": None}
    assert all(slots.take(f"a{number}", wanted) == [] for number in range(10))
    assert slots.take("b", wanted) is None
    slots.give_back("a0")
    assert slots.take("c", {"cpus": 0.1, "gpus": 0, "memory_mb": 900}) == []
    slots.give_back("a1")
    assert slots.take("d", {"cpus": 0.1, "gpus": 0, "memory_mb": 200}) is None


def test_accepting_twice_is_refused_and_keeps_the_first(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    accept(str(tmp_path), check_spec(good(command=["first"])), 1)
    with pytest.raises(FileExistsError):
        accept(str(tmp_path), check_spec(good(command=["second"])), 2)
    assert Attempt(str(tmp_path), "26-11-21-001", 1).spec()["command"] == ["first"]
    assert os.listdir(tmp_path / "attempts") == ["26-11-21-001.1"]


def test_bundle_is_the_same_every_time_and_runs(tmp_path: Path) -> None:
    data, version = bundle.build()
    assert bundle.build() == (data, version)
    program = tmp_path / "client.pyz"
    program.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-I", str(program), "status", "--home", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"attempts":[]' in done.stdout


def test_bundle_holds_every_source_that_the_client_needs() -> None:
    folder = Path(bundle.__file__).parent
    outside = {"bundle", "install"}  # for modules, not for the program
    names = {path.stem for path in folder.glob("*.py")} - outside
    assert names == {module.__name__.rpartition(".")[2] for module in bundle._PARTS["client"]}
    store = {path.stem for path in (folder.parent / "monkeyfs").glob("*.py")}
    assert {module.__name__.rpartition(".")[2] for module in bundle._PARTS["monkeyfs"]} <= store


def test_client_runs_on_the_oldest_python_that_is_promised() -> None:
    import ast

    folder = Path(bundle.__file__).parent
    for path in folder.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


def test_signal_reaches_only_the_process_that_was_meant() -> None:
    child = subprocess.Popen(["sleep", "100"])
    try:
        who = identity(child.pid)
        assert not send((who[0], who[1] - 1), 9)
        assert alive(who) and not alive((who[0], who[1] - 1))
        assert send(who, 9)
        child.wait()
        assert not alive(who) and not send(who, 9)
    finally:
        child.kill()
        child.wait()


def test_gpus_as_nvidia_smi_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, NVIDIA A100, 40960, 12, 97'\necho '1, NVIDIA A100, 40960, [N/A], 0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.gpus()[0] == {
        "index": 0,
        "name": "NVIDIA A100",
        "memory_total_mb": 40960,
        "memory_used_mb": 12,
        "utilization": 97,
    }
    assert len(machine.gpus()) == 2


def test_nvidia_smi_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "_NVIDIA_SMI_TIMEOUT_S", 0.2)
    before = time.monotonic()
    assert machine.gpus() == []
    assert time.monotonic() - before < 3
