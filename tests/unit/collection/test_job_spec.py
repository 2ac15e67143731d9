"""job.yml without the driver: what monkey.runner.job makes of its keys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.monkey.runner.plugins.module_utils import job_spec


def read(**keys: Any) -> dict[str, Any]:
    return job_spec.read({"command": ["true"], **keys}, "j-1")


def test_a_command_line_is_split_as_a_shell_would_and_a_list_is_taken_as_it_is() -> None:
    assert read(command="echo 'a b'")["attempt"]["command"] == ["echo", "a b"]
    assert read(command=["echo", "$(id) {{ x }}", 0.5, True, ""])["attempt"]["command"][1:] == [
        "$(id) {{ x }}",
        "0.5",
        "true",
        "",
    ]


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"command": None}, "command"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": "echo 'a"}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": [["a"]]}, "command"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": -1}, "time_limit"),
        ({"resources": {"cpu": 1}}, r"resources\.cpu: .*cpus"),
        ({"resources": {"cpus": 0}}, r"resources\.cpus"),
        ({"resources": {"gpus": -1}}, r"resources\.gpus"),
        ({"resources": {"gpus": "two"}}, r"resources\.gpus"),
        ({"resources": {"memory": "much"}}, r"resources\.memory"),
        ({"name": "a/b"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"env": "A=B"}, "env"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"run": {"env": {"MONKEY_JUID": "c"}}}, r"run\.env\.MONKEY_JUID"),
        ({"run": {"env_typ": "pip"}}, r"run\.env_typ: .*env_type"),
        ({"run": {"env_type": "venv"}}, r"run\.env_type"),
        ({"run": "pip"}, "run"),
        ({"code": {"path": "/etc"}}, r"code\.path"),
        ({"code": {"ignore": "data"}}, r"code\.ignore"),
        ({"persist": ["../x"]}, r"persist\[0\]\.path"),
        ({"persist": ["."]}, r"persist\[0\]\.path"),
        ({"persist": [3]}, r"persist\[0\]"),
        ({"persist": ["a", {"name": "a", "path": "b"}]}, "persist: two items"),
        ({"persist": [{"path": "a", "ignore": ["b"]}]}, r"persist\[0\]"),
        ({"data": [{"name": "d", "path": "/x"}]}, r"data\[0\]\.path"),
        ({"data": [{"name": "d"}]}, r"data\[0\]\.path"),
        ({"data": ["d"]}, r"data\[0\]"),
        ({"data": [{"name": "d", "path": "d", "type": "mount"}]}, r"data\[0\]"),
        ({"secrets": ["TOKEN"]}, "secrets"),
        ({"num_nodes": 2}, "num_nodes"),
    ],
)
def test_bad_keys_are_named(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(job_spec.JobSpecError, match=rf"^{named}"):
        read(**keys)


def test_a_bad_juid_is_refused() -> None:
    with pytest.raises(job_spec.JobSpecError, match="monkey_juid"):
        job_spec.read({"command": "true"}, "../up")


def test_the_file_of_the_original_with_keys_left_empty() -> None:
    text = """
    name: pendulum
    project_name: swing-up
    run: {env_type: conda, env_file: , env: [WANDB_MODE: offline, OMP_NUM_THREADS: 4], install_script: tools/in it.sh}
    install: [conda, cuda11.1]
    code: {path: ., ignore: [data, "*.ckpt"]}
    persist: [output, name: videos, {name: vid, path: logs/videos/}, ]
    data: [{name: trajectories, type: copy, path: ./data, compression: gztar}]
    providers: [{name: aws, spot: true}]
    env: {A: }
    setup:
    resources:
    time_limit: 1h30m
    secrets:
    """.replace("name: videos,", "{name: videos},")
    job = job_spec.read({**yaml.safe_load(text), "command": "python3 swing.py --up"}, "j-1")
    assert job["code"] == {"path": ".", "ignore": ["data", "*.ckpt", "/data", "/output", "/videos", "/logs/videos"]}
    assert job["environment"] == {"kind": "conda", "file": "environment.yml", "image": None}
    assert job["install"] == ["conda", "cuda11.1"]
    assert job["data"] == [{"name": "trajectories", "path": "data"}]
    attempt = job["attempt"]
    assert [item["path"] for item in attempt["persist"]] == ["output", "videos", "logs/videos"]
    assert attempt["env"] == {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "4", "A": ""}
    assert attempt["setup"] == [
        "if command -v bash >/dev/null; then bash './tools/in it.sh'; else sh './tools/in it.sh'; fi"
    ]
    assert attempt["time_limit_s"] == 5400
    assert attempt["resources"] == {"cpus": 1.0, "gpus": 0, "memory_mb": None}


def test_a_name_comes_from_the_script() -> None:
    assert read(command="python3 -u src/mnist.py --n 3")["attempt"]["name"] == "mnist"
    assert read(command=["/bin/echo"])["attempt"]["name"] == "echo"


def test_folders_that_go_another_way_are_left_out_of_the_code() -> None:
    job = read(code={"path": "src"}, data=[{"name": "d", "path": "src/da*ta"}, {"name": "e", "path": "else"}])
    assert job["code"] == {"path": "src", "ignore": ["/da\\*ta"]}


def test_an_image_needs_no_file() -> None:
    wanted = {"kind": "docker", "file": None, "image": "python:3.11"}
    assert read(run={"env_type": "docker"}, image="python:3.11")["environment"] == wanted
    assert read(run={"env_type": "docker"})["environment"] == {"kind": "docker", "file": "Dockerfile", "image": None}


def test_keys_of_the_scheduler_are_named_and_the_job_runs_all_the_same() -> None:
    keys = {"retries": 3, "retry_on": [1], "depends_on": ["kob"], "max_parallel": 2, "queue": "q", "lease": "5m"}
    job = read(**keys, priority=0, phase_limits={})
    assert job["attempt"] == read()["attempt"]
    (line,) = job["warnings"]
    assert "retries, retry_on, lease, depends_on, queue, max_parallel: run_job has no scheduler" in line
    assert read()["warnings"] == []


def test_slips_are_found_among_variables_of_all_kinds() -> None:
    names = ["persits", "monkey_dest", "lab_user", "command", "ansible_user", "release"]
    assert job_spec.slips(names) == [("persits", "persist")]


def test_what_a_link_leads_to_stays_in_the_folder(tmp_path: Any) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/out").symlink_to(tmp_path)
    (tmp_path / "job/in").mkdir()
    assert job_spec.below(str(tmp_path / "job"), "in", "data.x.path").endswith("job/in")
    with pytest.raises(job_spec.JobSpecError, match=r"data\.x\.path: 'out' leads out"):
        job_spec.below(str(tmp_path / "job"), "out", "data.x.path")
    with pytest.raises(job_spec.JobSpecError, match="has no 'gone'"):
        job_spec.below(str(tmp_path / "job"), "gone", "data.x.path")
