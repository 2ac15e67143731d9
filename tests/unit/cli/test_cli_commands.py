"""Listing, showing, changing jobs; fetching output; providers; JSON shapes; plain text into a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monkey.cli import show

Run = Callable[..., tuple[int, bytes, str]]


def test_jobs_in_a_pipe_are_plain_aligned_columns(monkey: Run, core: Any) -> None:
    core.add_job(state="SUCCEEDED", host="localhost", exit_code=0, started_at="2026-11-21T09:00:01.000Z",
                 finished_at="2026-11-21T09:00:13.000Z")  # fmt: skip
    core.add_job(name="a\x1b[31mb", state="DISPATCHING", phase="setup")
    code, out, err = monkey("list", "jobs")
    assert (code, err) == (0, "")
    assert b"\x1b" not in out
    header, first, second = out.decode().splitlines()
    assert header.split() == ["juid", "nick", "name", "state", "provider/host", "age", "time", "exit"]
    assert first.split()[:5] == ["26-11-21-001", "kob", "mnist", "SUCCEEDED", "local/localhost"]
    assert first.split()[-3:] == ["12", "s", "0"]
    assert "DISPATCHING (setup)" in second and second.split()[-1] == "-"
    assert header.index("state") == first.index("SUCCEEDED") == second.index("DISPATCHING")


def test_jobs_as_json_are_an_array(monkey: Run, core: Any) -> None:
    core.add_job()
    core.add_job()
    code, out, _ = monkey("list", "jobs", "--json")
    assert code == 0
    assert [job["juid"] for job in json.loads(out)] == ["26-11-21-001", "26-11-21-002"]
    assert json.loads(out)[0]["submitted_at"] == "2026-11-21T09:00:00.000Z"


def test_an_unknown_provider_in_a_filter_is_bad_input(monkey: Run, core: Any) -> None:
    assert monkey("list", "jobs", "-p", "lap") == (2, b"", "monkey: provider: no provider 'lap'; did you mean lab?\n")
    assert monkey("list", "jobs", "-p", "lab", "--json")[:2] == (0, b"[]\n")


def test_providers_and_instances(monkey: Run, core: Any) -> None:
    assert [one["name"] for one in json.loads(monkey("list", "providers", "--json")[1])] == ["local", "lab"]
    hosts = json.loads(monkey("list", "instances", "--json")[1])
    assert [(host["provider"], host["name"]) for host in hosts] == [("local", "localhost"), ("lab", "localhost")]
    assert len(json.loads(monkey("list", "instances", "-p", "lab", "--json")[1])) == 1
    assert b"ready" not in monkey("list", "providers")[1]
    assert b"ready" in monkey("list", "providers", "--monkey-instances")[1]
    assert json.loads(monkey("info", "provider", "lab", "--json")[1])["hosts"][0]["cpus"] == 2
    assert b"3.11.2" in monkey("info", "provider", "lab")[1]


@pytest.mark.parametrize(
    "words",
    [["info", "job"], ["logs"], ["logs", "-f"], ["output"], ["kill", "job"], ["job", "rerun"], ["job", "pause"]],
    ids=" ".join,
)
def test_an_unknown_job_is_one_line_with_the_nearest(monkey: Run, core: Any, words: list[str], project: Path) -> None:
    core.add_job()
    assert monkey(*words, "kib") == (2, b"", "monkey: job: no job 'kib'; did you mean kob?\n")
    assert core.jobs["26-11-21-001"]["state"] == "QUEUED"
    assert not (project / "monkey-output").exists()


def test_info_job_shows_what_matters(monkey: Run, core: Any) -> None:
    git = {"commit": "0123456789abcdef", "branch": "main", "dirty": True}
    core.add_job(state="FAILED", reason="NONZERO_EXIT", message="It ended with an error.", exit_code=3,
                 host="localhost", command=["python3", "a b", "\x1b[2J"], env={"TOKEN": "sesame"},
                 code={"tree": "ab" * 32, "path": ".", "files": 2, "size_bytes": 1500, "git": git})  # fmt: skip
    code, out, _ = monkey("info", "job", "--juid", "kob")
    text = out.decode()
    assert code == 0 and "\x1b" not in text
    wanted = ("26-11-21-001 (kob)", "NONZERO_EXIT: It ended", "python3 'a b'", "local/localhost", "2 files, 1.5 kB")
    for words in wanted:
        assert words in text
    assert "0123456789ab on main, with uncommitted changes" in text
    assert "TOKEN" in text and "sesame" not in text
    assert json.loads(monkey("info", "job", "kob", "--json")[1])["exit_code"] == 3


def test_logs_are_bytes(monkey: Run, core: Any) -> None:
    job = core.add_job(state="SUCCEEDED", attempt=1)
    core.logs[job["juid"]] = b"\xff\x00\r\n" * 50_000
    assert monkey("logs", "kob")[:2] == (0, core.logs[job["juid"]])
    core.cut_logs_at = [70_001]
    assert monkey("logs", "-f", "--juid", job["juid"])[:2] == (0, core.logs[job["juid"]])


def test_changing_jobs(monkey: Run, core: Any) -> None:
    core.add_job()
    core.add_job()
    assert monkey("kill", "job", "kob", "--juid", "bab")[0] == 0
    assert {job["state"] for job in core.jobs.values()} == {"CANCELLED"}
    for verb in ("cancel", "pause", "resume"):
        assert monkey("job", verb, "kob")[0] == 0
        assert core.requests[-1] == f"POST /jobs/26-11-21-001/{verb}"
    assert json.loads(monkey("job", "rerun", "kob", "--json")[1])["juid"] == "26-11-21-003"
    assert len(json.loads(monkey("kill", "job", "kob", "bab", "--json")[1])) == 2


def test_of_several_jobs_none_is_touched_when_one_is_unknown(monkey: Run, core: Any) -> None:
    core.add_job()
    assert monkey("kill", "job", "kob", "nix")[0] == 2
    assert core.jobs["26-11-21-001"]["state"] == "QUEUED"


def test_kill_can_wait_until_it_is_over(monkey: Run, core: Any) -> None:
    core.add_job(state="RUNNING")
    assert monkey("kill", "job", "kob", "--wait")[0] == 0
    assert b"CANCELLED" in monkey("list", "jobs")[1]


def test_output_fetches_only_what_is_new_and_leaves_the_rest(
    monkey: Run, core: Any, project: Path, tmp_path: Path
) -> None:
    from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees

    made = tmp_path / "made"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "losses.csv").write_text("1\n2\n")
    (made / "checkpoint").write_bytes(b"\0" * 1000)
    core.collected["tree"] = core.fs.take(*trees.scan(made))[0]
    job = core.add_job(state="RUNNING", persist=[{"name": "out", "path": "output"}])
    core.logs[job["juid"]] = b"so far\n"
    code, out, _ = monkey("output", "kob", "--json")
    folder = project / "monkey-output" / job["juid"]
    told = json.loads(out)
    assert code == 0 and (told["files"], told["bytes"]) == (2, 1004)
    assert (folder / "output" / "sub" / "losses.csv").read_text() == "1\n2\n"
    assert (folder / "monkey.log").read_bytes() == b"so far\n"
    (folder / "output" / "mine.txt").write_text("mine")
    (made / "sub" / "losses.csv").write_text("1\n2\n3\n")
    core.collected["tree"] = core.fs.take(*trees.scan(made))[0]
    core.collected["skipped"] = [{"path": "busy", "why": "keeps changing while it is read"}]
    code, out, err = monkey("output", "--juid", "kob")
    assert err == "left out: output/busy: keeps changing while it is read\n"
    assert out.decode().startswith(f"monkey-output/{job['juid']}: 1 file, 6 B new in output")
    assert (folder / "output" / "mine.txt").read_text() == "mine"
    assert (folder / "output" / "sub" / "losses.csv").read_text() == "1\n2\n3\n"
    assert sorted(path.name for path in folder.iterdir()) == ["monkey.log", "output"]


def test_output_never_leaves_its_folder(monkey: Run, core: Any, project: Path, tmp_path: Path) -> None:
    from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees

    made = tmp_path / "made"
    made.mkdir()
    (made / "f").write_text("x")
    core.collected["tree"] = core.fs.take(*trees.scan(made))[0]
    core.add_job(state="SUCCEEDED", persist=[{"name": "out", "path": "../../outside"}])
    code, _, err = monkey("output", "kob")
    assert code == 1 and "outside" in err and err.count("\n") == 1
    assert not (project / "outside").exists() and not (project / "monkey-output" / "outside").exists()


def test_a_destination_that_cannot_be_written(monkey: Run, core: Any, project: Path) -> None:
    core.add_job(state="SUCCEEDED")
    code, _, err = monkey("output", "kob", "--dest", "a.py")
    assert code == 2 and err.startswith("monkey: --dest: ") and err.count("\n") == 1


def test_provider_add_pins_what_was_shown(monkey: Run, core: Any, project: Path) -> None:
    (project / "key").write_text("k")
    code, out, err = monkey(
        "provider", "add", "new", "--type", "ssh", "--host", "me@h", "--key", "key", "--slots", "2", "--noinput"
    )
    assert code == 0
    assert "me@h: ED25519 SHA256:abc" in err and b"ready" in out
    assert core.added == [{
        "name": "new", "type": "ssh", "hosts": [{"host": "me@h", "fingerprint": "SHA256:abc"}],
        "key_file": str(project / "key"), "ssh_config": None, "slots": 2,
    }]  # fmt: skip


def test_provider_add_of_a_host_that_does_not_answer(monkey: Run, core: Any) -> None:
    core.probed = [{"host": "me@h", "fingerprint": None, "key_type": None, "error": "does not answer on port 22"}]
    code, out, err = monkey("provider", "add", "new", "--type", "ssh", "--host", "me@h", "--noinput")
    assert (code, out) == (2, b"") and core.added == []
    assert err.splitlines()[-1].startswith("monkey: me@h: does not answer on port 22")


def test_provider_of_a_name_that_is_taken(monkey: Run, core: Any) -> None:
    code, _, err = monkey("provider", "add", "lab", "--type", "ssh", "--host", "me@h", "--noinput")
    assert code == 2 and err.startswith("monkey: lab: there is a provider of this name")
    assert core.added == []


def test_provider_add_without_an_answer_adds_nothing(
    monkey: Run, core: Any, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    with (project / "empty").open("w+") as empty:
        monkeypatch.setattr("sys.stdin", empty)
        code, _, err = monkey("provider", "add", "new", "--type", "ssh", "--host", "me@h")
    assert code == 2 and "no answer" in err and core.added == []


def test_provider_check_and_remove(monkey: Run, core: Any) -> None:
    assert monkey("provider", "check", "lab")[0] == 0
    core.providers[1]["hosts"][0].update(state="unreachable", message="does not answer")
    code, out, _ = monkey("provider", "check", "lab")
    assert code == 1 and b"does not answer" in out
    assert monkey("provider", "remove", "lab")[:2] == (0, b"provider lab removed\n")
    assert monkey("provider", "remove", "lap")[0] == 2


@pytest.mark.parametrize("name", ["local", "lab"])
def test_instances_are_not_created_where_machines_exist(monkey: Run, core: Any, name: str) -> None:
    code, out, err = monkey("create", "instance", "-p", name)
    assert (code, out) == (2, b"")
    assert err.startswith("monkey: --provider: ") and "monkey provider add" in err and err.count("\n") == 1


def test_core_status(monkey: Run, core: Any) -> None:
    code, out, _ = monkey("core", "status", "--json")
    assert code == 0 and {"pid", "version", "uptime_s", "jobs"} <= set(json.loads(out))
    assert b"up for" in monkey("core", "status")[1]


def test_times_and_sizes_for_people() -> None:
    spans = [(0.42, "0.4 s"), (12, "12 s"), (119, "119 s"), (600, "10 min"), (7500, "2 h 5 min"), (360_000, "4 d 4 h")]
    assert [show.span(seconds) for seconds, _ in spans] == [words for _, words in spans]
    sizes = [(0, "0 B"), (999, "999 B"), (3400, "3.4 kB"), (5_000_000, "5.0 MB"), (2.5e12, "2.5 TB")]
    assert [show.size(count) for count, _ in sizes] == [words for _, words in sizes]
    assert show.clean("a\x1b]0;x\x07\nb") == "a\\x1b]0;x\\x07\\nb"
