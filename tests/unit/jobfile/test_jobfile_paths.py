"""Paths of a job file against the disk."""

from pathlib import Path

import pytest

from monkey.errors import UsageProblem
from monkey.jobfile import check_paths, load, merge


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, data, an output that is there, and links that lead out and in."""
    home = tmp_path / "job"
    for name in ("src", "data/train", "output", "tools"):
        (home / name).mkdir(parents=True)
    (home / "requirements.txt").write_text("")
    (home / "tools" / "install.sh").write_text("")
    (tmp_path / "job-outside").mkdir()
    (home / "out").symlink_to(tmp_path / "job-outside")
    (home / "in").symlink_to("data")
    (home / "src" / "up").symlink_to("../..")
    (home / "broken").symlink_to("nowhere")
    monkeypatch.chdir(home)
    return home


def check(folder: Path, content: str) -> None:
    (folder / "job.yml").write_text(content)
    check_paths(load(Path("job.yml")), folder)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "code: {path: src}\npersist: [output]\ndata: [{name: d, path: data}]",
        "persist: [not/yet/there, output]",
        "data: [{name: d, path: in}]",
        "run: {env_type: pip}",
        "run: {env_type: docker, image: debian}",
        "run: {env_type: none, install_script: tools/install.sh}",
        "persist: [data2]\ndata: [{name: d, path: data}]",
    ],
)
def test_paths_inside_are_fine(folder: Path, content: str) -> None:
    check(folder, content)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("code: {path: sr}", "job.yml: code.path: no folder 'sr'"),
        ("code: {path: job.yml}", "job.yml: code.path: 'job.yml' is a file; expected a folder"),
        ("code: {path: out}", "job.yml: code.path: 'out' leads out of the folder of the job file through a link"),
        ("code: {path: src/up}", "job.yml: code.path: 'src/up' leads out"),
        ("data: [{name: d, path: nope}]", "job.yml: data[0].path: no folder 'nope'"),
        ("data: [{name: d, path: broken}]", "job.yml: data[0].path: no folder 'broken'"),
        ("data: [{name: d, path: out}]", "job.yml: data[0].path: 'out' leads out"),
        ("data: [{name: d, path: .}]", "data[0].path: expected a folder inside the folder of the job file, not that"),
        ("persist: [out/x]", "job.yml: persist[0].path: 'out/x' leads out"),
        ("persist: [src/up/job-outside]", "job.yml: persist[0].path: 'src/up/job-outside' leads out"),
        ("persist: [{name: o, path: .}]", "persist[0].path: expected a folder inside"),
        ("persist: [requirements.txt]", "persist[0].path: 'requirements.txt' is a file; expected a folder"),
        ("persist: [output, output/a]", "persist[1].path: 'output/a' overlaps persist.output ('output')"),
        ("persist: [output/a, output]", "persist[1].path: 'output' overlaps persist.output-a ('output/a')"),
        ("persist: [{name: a, path: x}, {name: b, path: x}]", "persist[1].path: 'x' overlaps persist.a"),
        ("persist: [data/out]\ndata: [{name: d, path: data}]", "persist[0].path: 'data/out' overlaps data.d ('data')"),
        ("persist: [data]\ndata: [{name: d, path: in}]", "persist[0].path: 'data' overlaps data.d ('in')"),
        ("data: [{name: a, path: data}, {name: b, path: data/train}]", "data[1].path: 'data/train' overlaps data.a"),
        ("run: {env_type: pip, env_file: req.txt}", "job.yml: run.env_file: no file 'req.txt'"),
        ("run: {env_type: conda}", "run.env_file: no file 'environment.yml', which env_type conda needs"),
        ("run: {env_type: docker}", "run.env_file: no file 'Dockerfile', which env_type docker needs"),
        ("run: {install_script: nope.sh}", "job.yml: run.install_script: no file 'nope.sh'"),
    ],
)
def test_other_paths_are_refused(folder: Path, content: str, says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        check(folder, content)
    assert says in str(caught.value)


def test_a_path_that_came_by_flag_is_named_by_it(folder: Path) -> None:
    (folder / "job.yml").write_text("")
    job = merge(load(Path("job.yml")), {"code.path": "nope"}, {"code.path": "--code"})
    with pytest.raises(UsageProblem, match=r"^--code: no folder 'nope'"):
        check_paths(job, folder)
