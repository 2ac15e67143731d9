"""`from monkeycli import MonkeyCLI`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monkeycli import Job, MonkeyCLI, MonkeyError, UsageProblem


def test_run_returns_at_once_and_splits_as_a_shell(core: Any, project: Path) -> None:
    job = MonkeyCLI().run("python -u mnist.py --learning-rate '0 1' $HOME")
    assert isinstance(job, Job) and (job.juid, job.nickname) == ("26-11-21-001", "kob")
    assert core.submissions[0]["command"] == ["python", "-u", "mnist.py", "--learning-rate", "0 1", "$HOME"]
    assert job.state == "QUEUED" and job.exit_code is None


def test_a_list_is_taken_as_it_is(core: Any, project: Path) -> None:
    words = ["a b", "", "$(x)", "🐒"]
    MonkeyCLI().run(words)
    assert core.submissions[0]["command"] == words


def test_a_loop_sends_the_code_once(core: Any, project: Path) -> None:
    jobs = [MonkeyCLI().run(f"python3 a.py {rate}") for rate in (1, 2, 3)]
    assert len({job.juid for job in jobs}) == 3 and core.packed == [1]


def test_flags_of_the_object_and_of_the_call(core: Any, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.py").write_text("x")
    MonkeyCLI(other, provider="lab", env={"A": "1", "B": "1"}).run("x", cpus=2, time_limit=90, env={"B": "2"})
    sent = core.submissions[0]
    assert (sent["provider"], sent["env"], sent["time_limit_s"]) == ("lab", {"A": "1", "B": "2"}, 90)
    assert sent["resources"]["cpus"] == 2
    assert [entry["path"] for entry in core.fs.get_tree(sent["code"]["tree"])["entries"]] == ["x.py"]


def test_wait_logs_output(core: Any, project: Path, tmp_path: Path) -> None:
    core.output = b"one\ntwo \xff\nthree"
    job = MonkeyCLI().run("x")
    assert job.wait() == "SUCCEEDED" and job.exit_code == 0
    assert job.logs() == "one\ntwo \ufffd\nthree"
    assert list(job.logs(follow=True)) == ["one\n", "two \ufffd\n", "three"]
    folder = job.output(tmp_path / "fetched")
    assert folder == tmp_path / "fetched" / job.juid and (folder / "monkey.log").read_bytes() == core.output
    assert job.info()["state"] == "SUCCEEDED"


def test_wait_gives_up_after_its_time(core: Any, project: Path) -> None:
    core.becomes = []
    assert MonkeyCLI().run("x").wait(timeout_s=0.1) == "QUEUED"


def test_cancel(core: Any, project: Path) -> None:
    job = MonkeyCLI().run("x")
    job.cancel()
    assert job.state == "CANCELLED"


def test_jobs_of_earlier(core: Any) -> None:
    core.add_job()
    assert MonkeyCLI().job("kob").juid == "26-11-21-001"
    assert [job.nickname for job in MonkeyCLI().jobs()] == ["kob"]
    with pytest.raises(UsageProblem, match="did you mean kob"):
        MonkeyCLI().job("kib")


@pytest.mark.parametrize(
    ("command", "flags", "field"),
    [
        ("echo 'open", {}, "command"),
        ("", {}, "command"),
        ([], {}, "command"),
        (["a", 3], {}, "command"),
        (["a\0"], {}, "command"),
        (["\udcff"], {}, "command"),
        ("x", {"cpus": -1}, "--cpus"),
        ("x", {"provder": "lab"}, "provder"),
    ],
)
def test_bad_input_is_an_exception_that_names_the_field(
    core: Any, project: Path, command: Any, flags: dict[str, Any], field: str
) -> None:
    with pytest.raises(UsageProblem) as caught:
        MonkeyCLI().run(command, **flags)
    assert caught.value.field == field
    assert isinstance(caught.value, MonkeyError)
    assert core.jobs == {}
