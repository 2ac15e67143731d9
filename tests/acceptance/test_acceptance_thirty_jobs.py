"""A researcher's day: three machines, thirty trainings over them, the results at home and nothing left behind."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

JOBS = 30
# What may stay of an attempt: the note that it was there, so that nobody runs it again.
TOMBSTONE_BYTES = 4096


def _sent(stderr: str) -> str | None:
    found = re.search(r"^sent (.*)$", stderr, re.MULTILINE)
    return found[1] if found else None


def test_thirty_trainings_over_three_hosts(lab: Any, example: Path) -> None:
    flags = ("-p", "lab", "--cpus", "0.2")
    train = ("python3", "mnist.py", "--n-epochs", "1", "--hidden", "8", "--learning-rate")
    juids = [lab.start(example, *flags, "--name", f"rate-{n}", *train, f"0.{n + 10}") for n in range(JOBS)]
    assert len(set(juids)) == JOBS
    jobs = [lab.end(juid, timeout_s=180) for juid in juids]
    assert Counter(job["state"] for job in jobs) == {"SUCCEEDED": JOBS}, [job["message"] for job in jobs]
    assert {lab.host_of(job).name for job in jobs} == {"lab1", "lab2", "lab3"}
    listed = lab.json("list", "jobs", "--finished", "-p", "lab")
    assert set(juids) <= {job["juid"] for job in listed}

    # Code and data went to each host once: all that was sent to the three is three times what one lacked.
    for host in lab.hosts:
        sent = [job["sent"]["bytes"] for job in jobs if lab.host_of(job) is host]
        assert sorted(sent, reverse=True)[0] > 0 and sum(size > 0 for size in sent) == 1, sent

    for juid in (juids[0], juids[-1]):
        lab.monkey("output", juid, cwd=example)
        folder = example / "monkey-output" / juid
        rows = list(csv.DictReader((folder / "output" / "losses.csv").open()))
        assert len(rows) == 1 and float(rows[0]["accuracy"]) > 0.3
        assert (folder / "output" / "checkpoint.npz").stat().st_size > 1000
        assert "epoch 1/1" in (folder / "monkey.log").read_text()
    # The others' results are at home too, although nobody has asked for them yet.
    assert all(item["tree"] for job in jobs for item in job["persist"])

    for host in lab.hosts:
        assert lab.attempts_left(host) == {}
        assert lab.processes_of_jobs(host) == []
        for one in (lab.client_home(host) / "attempts").iterdir():
            assert sum(path.stat().st_size for path in one.rglob("*") if path.is_file()) < TOMBSTONE_BYTES


def test_unchanged_code_and_data_are_not_sent_again(lab: Any, project: Any) -> None:
    files = {f"part{n}.py": f"# part {n} of this test only\n" * 50 for n in range(5)}
    files |= {"data/a.csv": "1,2\n" * 500, "job.yml": "data:\n  - {name: numbers, path: data}\n"}
    files["main.py"] = "import part0\nprint(len(open('data/a.csv').read()))\n"
    folder = project(files)
    run = ("run", "-p", "lab", "--instance", lab.host_names()[0], "python3", "main.py")

    first = lab.monkey(*run, cwd=folder)
    assert first.stdout == "2000\n"
    assert _sent(first.stderr) is not None
    assert lab.sent_last()["files"] == len(files)

    plan = json.loads(lab.monkey("run", "--dry-run", "--json", *run[1:], cwd=folder).stdout)
    assert plan["send"] == {"files": 0, "bytes": 0} and plan["upload"] == {"files": 0, "bytes": 0}
    again = lab.monkey(*run, cwd=folder)
    assert again.stdout == "2000\n"
    assert _sent(again.stderr) == "0 B: nothing changed"  # to the main node
    assert lab.sent_last() == {"files": 0, "bytes": 0}  # to the host

    (folder / "part0.py").write_text("# changed\n")
    changed = lab.monkey(*run, cwd=folder)
    assert _sent(changed.stderr) == "1 file, 10 B"
    assert lab.sent_last() == {"files": 1, "bytes": 10}

    (folder / "data" / "b.csv").write_text("3,4\n")
    lab.monkey(*run, cwd=folder)
    assert lab.sent_last() == {"files": 1, "bytes": 4}
