"""The docker environment, with a stand-in for the engine at the edge: a program that notes its arguments and runs the
command in the folder that was mounted on /work."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import until

ENGINE = f"""#!{sys.executable}
import json, os, sys
args = sys.argv[1:]
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "calls"), "a") as handle:
    handle.write(json.dumps(args) + "\\n")
if args[0] == "rm":
    sys.exit(0)
if "missing" in args:
    sys.stderr.write("Unable to find image 'missing'\\n")
    sys.exit(125)
mounts = [args[i + 1].split(":") for i, a in enumerate(args) if a == "-v"]
work = next(m[0] for m in mounts if m[1] == "/work")
tmp = next(m[0] for m in mounts if m[1] == "/monkey-tmp")
env = {{"PATH": os.environ["PATH"]}}
with open(args[args.index("--env-file") + 1]) as handle:
    env.update(line.rstrip("\\n").split("=", 1) for line in handle)
env.update((args[i + 1], os.environ[args[i + 1]]) for i, a in enumerate(args) if a == "-e" and i < args.index("image"))
os.chdir(work)
command = [a.replace("/monkey-tmp", tmp) for a in args[args.index("image") + 1:]]
os.execvpe(command[0], command, env)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "docker").write_text(ENGINE)
    (folder / "docker").chmod(0o755)
    return folder


def environment(engine: Path, image: str = "image", options: list[str] | None = None) -> dict[str, Any]:
    return {"kind": "docker", "engine": str(engine / "docker"), "image": image, "options": options or []}


def calls(engine: Path) -> list[list[str]]:
    return [json.loads(line) for line in (engine / "calls").read_text().splitlines()]


def test_container_gets_command_environment_and_mounts(host: Any, engine: Path) -> None:
    script = "import os, json, sys; json.dump([sys.argv[1:], dict(os.environ)], sys.stdout)"
    env = {"SECRET": "pass word", "LINES_": "a\nb"}
    given = ["a b", "$(id)", "-x", "{{ x }}"]
    attempt = host.launch(
        "python3", "-c", script, *given, env=env, environment=environment(engine, options=["--network", "host"])
    )
    assert host.ended(attempt)["exit_code"] == 0
    arguments, seen = json.loads(host.log(attempt))
    assert arguments == given
    assert (seen["SECRET"], seen["LINES_"]) == ("pass word", "a\nb")
    assert seen["MONKEY_OUTPUT"] == "/work/output" and seen["MONKEY_JUID"] == attempt.juid
    run = calls(engine)[0]
    assert run[:2] == ["run", "--rm"]
    assert run[run.index("--name") + 1] == f"monkey-{attempt.juid}-1"
    assert run[run.index("-w") + 1] == "/work"
    assert run.index("--network") < run.index("image")
    assert not any("pass word" in argument or "a\nb" in argument for argument in run)
    assert os.stat(attempt.path("tmp/env")).st_mode & 0o077 == 0


def test_cancel_removes_the_container_by_name(host: Any, engine: Path) -> None:
    attempt = host.launch("sleep", "1000", environment=environment(engine))
    host.running(attempt)
    until((engine / "calls").exists)
    host.order("cancel", attempt)
    assert host.ended(attempt)["state"] == "CANCELLED"
    assert ["rm", "-f", f"monkey-{attempt.juid}-1"] in calls(engine)
    assert host.processes(attempt) == []


def test_setup_lines_run_in_the_container_before_the_command(host: Any, engine: Path) -> None:
    good = host.launch("cat", "made", setup=["echo inside > made"], environment=environment(engine))
    assert host.ended(good)["state"] == "SUCCEEDED"
    assert host.log(good) == "inside\n"
    bad = host.launch("cat", "made", setup=["echo because; exit 9"], environment=environment(engine))
    ended = host.ended(bad)
    assert ended["state"] == "FAILED_SETUP" and "because" in ended["message"]
    late = host.launch("sh", "-c", "exit 9", setup=["true"], environment=environment(engine))
    assert host.ended(late)["state"] == "FAILED"


def test_engine_error_and_missing_engine_fail_setup(host: Any, engine: Path) -> None:
    ended = host.ended(host.launch("true", environment=environment(engine, image="missing")))
    assert ended["state"] == "FAILED_SETUP" and "Unable to find image" in ended["message"]
    absent = {"kind": "docker", "engine": "no-such-engine", "image": "image", "options": []}
    ended = host.ended(host.launch("true", environment=absent))
    assert ended["state"] == "FAILED_SETUP" and "no-such-engine is not installed" in ended["message"]


def test_memory_and_gpus_are_given_to_the_engine(host: Any, engine: Path) -> None:
    host.slots(gpus=4)
    resources = {"cpus": 1, "gpus": 2, "memory_mb": 512}
    attempt = host.launch(
        "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", resources=resources, environment=environment(engine)
    )
    assert host.ended(attempt)["exit_code"] == 0
    assert host.log(attempt) == "0,1\n"
    run = calls(engine)[0]
    assert run[run.index("--memory") + 1] == "512m"
    assert run[run.index("--gpus") + 1] == '"device=0,1"'
