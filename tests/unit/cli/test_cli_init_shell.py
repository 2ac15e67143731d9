"""`monkey init`, and the prompt shell."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monkey.cli.main import cli
from monkey.cli.shell import shell
from monkey.jobfile import check_paths, load

Run = Callable[..., tuple[int, bytes, str]]


def test_init_writes_what_the_folder_suggests(monkey: Run, project: Path) -> None:
    (project / "requirements.txt").write_text("numpy\n")
    (project / "data").mkdir()
    (project / "output").mkdir()
    assert monkey("init", "--noinput")[:2] == (0, b"wrote job.yml\n")
    job = load(project / "job.yml")
    check_paths(job, project)
    assert (job.name, job.run.env_type, job.environment_file) == ("project", "pip", "requirements.txt")
    assert ([item.path for item in job.data], [item.path for item in job.persist]) == (["data"], ["output"])
    assert "# " in (project / "job.yml").read_text()


@pytest.mark.parametrize("name", ["yes", "3.10", "two words", "ä", "-x", "null", "0x1f", "1e3", "a: b"])
def test_init_in_a_folder_of_any_name(monkey: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    assert monkey("init", "--noinput")[0] == 0
    assert load(tmp_path / name / "job.yml").name


def test_init_keeps_what_was_there(monkey: Run, project: Path) -> None:
    (project / "job.yml").write_text("first")
    (project / "job.yml.old.0").write_text("older")
    assert monkey("init", "--noinput")[0] == 0
    assert (project / "job.yml.old.1").read_text() == "first"
    assert (project / "job.yml.old.0").read_text() == "older"


def test_init_asks(monkey: Run, core: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("images", "results", "src"):
        (project / folder).mkdir()
    (project / "environment.yml").write_text("name: x\n")
    answers = ["proj", "two words", "flow", "1", "", "nothing", "1", "results", "lap", "lab"]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(answer + "\n" for answer in answers)))
    code, _, err = monkey("init")
    assert code == 0, err
    job = load(project / "job.yml")
    assert (job.project_name, job.name, job.run.env_type) == ("proj", "flow", "conda")
    assert [item.path for item in job.data] == ["images"]
    assert [item.path for item in job.persist] == ["results"]
    assert [item.name for item in job.providers] == ["lab"]


def test_init_without_answers_writes_nothing(monkey: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = monkey("init")
    assert code == 2 and "--noinput" in err
    assert not (project / "job.yml").exists()


def test_the_shell_goes_on_after_errors(
    core: Any, project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["list jbos", "run -d python3 'a b'", "", "broken 'quote", "monkey list jobs", "help list", "exit", "never"]
    prompts = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", typed)
    assert shell(cli) == 0
    out, err = capfd.readouterr()
    assert lines == ["never"] and set(prompts) == {"monkey> "}
    assert "did you mean `monkey list jobs`?" in err and "cannot be read" in err
    assert out.count("26-11-21-001") == 2 and "Usage: monkey list" in out
    assert core.submissions[0]["command"] == ["python3", "a b"]


def test_the_shell_ends_with_its_input(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert shell(cli) == 0
