"""One folder of code and what happens to it on an ssh host, job by job.

The jobs of this file are handed in together, as a researcher does, so that they share playbook runs; each test then
looks at its own.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

PROBE = r"""
import json, os, sys, time
what = sys.argv[1]
go = "go"

def wait():
    while not os.path.exists(go):
        time.sleep(0.05)

if what == "args":
    print(json.dumps({"args": sys.argv[2:], "env": os.environ["TRICKY"]}))
elif what == "look":
    def attempt(action):
        try:
            action()
            return "done"
        except OSError as error:
            return type(error).__name__
    say = {key: value for key, value in os.environ.items() if key.startswith("MONKEY_")}
    say["cwd"] = os.getcwd()
    say["uid"] = os.getuid()
    say["files"] = sorted(os.path.join(at, name)[2:] for at, _, names in os.walk(".") for name in names)
    say["data"] = open("data/numbers.csv").read()
    say["data_at"] = os.path.realpath("data")
    say["write"] = attempt(lambda: open("data/numbers.csv", "a"))
    say["create"] = attempt(lambda: open("data/new.csv", "w"))
    say["remove"] = attempt(lambda: os.unlink("data/numbers.csv"))
    say["command"] = sys.argv
    print(json.dumps(say))
elif what == "exit":
    print("leaving")
    sys.exit(int(sys.argv[2]))
elif what == "persist":
    os.makedirs("results/deep", exist_ok=True)
    open("results/deep/first.txt", "w").write("first\n")
    print("first is written", flush=True)
    wait()
    open("results/second.txt", "w").write("second\n")
    print("second is written", flush=True)
elif what == "tick":
    for n in range(100000):
        if os.path.exists(go):
            break
        print("tick", n, flush=True)
        time.sleep(0.05)
elif what == "own":
    open("probe.py", "w").write("# changed by " + sys.argv[2])
    open("left-by", "w").write(sys.argv[2])
    print("changed", flush=True)
    wait()
    print(open("probe.py").read(), open("left-by").read())
"""

ARGS = [
    "two words",
    "",
    'it\'s "quoted" `and` \\ ticked',
    "line one\nline two\n",
    "$(touch /tmp/pwned) $HOME ${HOME} ; | & > <",
    "{{ 7 * 7 }} {% raw %} {# no #}",
    "-leading",
    "--help",
    "--",
    "snowman ☃ and 🐒",
    "tab\tand \x01 control \x7f",
    "!unsafe *glob* ?[a-z] ~",
    '\'{{ lookup("pipe", "id") }}\'',
    "x" * 100_000,
]
TRICKY = "{{ ansible_user }}\n$(id) 'a' \"b\" 🐒"

JOB_YML = """\
code:
  ignore: [secret_notes, "*.bak"]
data:
  - {name: numbers, path: data}
"""
# Each way a set-up can go wrong, with what the tool itself said.
BROKEN_PIP = "run: {env_type: pip, env_file: broken.txt}\n"
BROKEN_SETUP = "setup: ['echo preparing', 'no-such-program --now', 'echo not reached']\n"
PERSIST = "persist: [results]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    files = {
        "probe.py": PROBE,
        "job.yml": JOB_YML,
        "pip.yml": BROKEN_PIP,
        "setup.yml": BROKEN_SETUP,
        "persist.yml": PERSIST,
        "broken.txt": "no-such-package-of-anyone==99.9\n",
        "data/numbers.csv": "1,2,3\n",
        "secret_notes": "not for the host\n",
        "old.bak": "old\n",
        "ignored.log": "by git\n",
        ".gitignore": "*.log\nresults/\n",
        "sub/kept.py": "# kept\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=R", "-c", "user.email=r@example.org"]
    for words in (["init", "-q", "-b", "study"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True)
    (folder / "probe.py").write_text(PROBE + "\n# not committed\n")
    return folder


@pytest.fixture(scope="module")
def jobs(lab: Any, folder: Path) -> dict[str, str]:
    """{name: JUID} of the jobs that are handed in together."""
    p = ("-p", "lab", "--cpus", "0.1")
    probe = ("python3", "probe.py")
    return {
        "args": lab.start(folder, *p, "--env", f"TRICKY={TRICKY}", *probe, "args", *ARGS),
        "look": lab.start(folder, *p, "-n", "look-around", *probe, "look"),
        "look2": lab.start(folder, *p, *probe, "look"),
        "exit": lab.start(folder, *p, *probe, "exit", "7"),
        "missing": lab.start(folder, *p, "no-such-command-here"),
        "limit": lab.start(
            folder, *p, "--time-limit", "1", "sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done"
        ),
        "tick": lab.start(folder, *p, *probe, "tick"),
        "own-a": lab.start(folder, *p, *probe, "own", "a"),
        "own-b": lab.start(folder, *p, *probe, "own", "b"),
        "persist": lab.start(folder, *p, "-jf", "persist.yml", *probe, "persist"),
        "setup": lab.start(folder, *p, "-jf", "setup.yml", *probe, "look"),
        "pip": lab.start(folder, *p, "-jf", "pip.yml", *probe, "look"),
    }


@pytest.fixture(scope="module")
def go(lab: Any) -> Callable[[str], None]:
    """Lets a waiting job go on: a file in its work folder."""

    def go(juid: str) -> None:
        job = lab.job(juid)
        work = lab.client_home(lab.host_of(job)) / "attempts" / f"{juid}.{job['attempt']}" / "work"
        (work / "go").touch()

    return go


def test_arguments_and_variables_arrive_byte_for_byte(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["args"])
    assert job["state"] == "SUCCEEDED", job["message"]
    assert json.loads(lab.logs(jobs["args"])) == {"args": ARGS, "env": TRICKY}
    assert job["command"][3:] == ARGS


def test_what_a_job_sees(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["look"])
    seen = json.loads(lab.logs(jobs["look"]))
    assert seen["MONKEY_JUID"] == job["juid"]
    assert seen["MONKEY_ATTEMPT"] == "1"
    assert seen["MONKEY_NAME"] == job["name"] == "look-around"
    assert float(seen["MONKEY_NUM_CPUS"]) >= 0.1
    assert seen["MONKEY_OUTPUT"] == f"{seen['cwd']}/output"
    assert seen["uid"] != 0
    assert job["provider"] == "lab" and job["host"] in lab.host_names()


def test_what_is_ignored_stays_at_home(lab: Any, jobs: dict[str, str]) -> None:
    lab.end(jobs["look"])
    seen = json.loads(lab.logs(jobs["look"]))
    assert "probe.py" in seen["files"] and "sub/kept.py" in seen["files"]
    for name in ("secret_notes", "old.bak", "ignored.log"):
        assert name not in seen["files"]
    assert not [name for name in seen["files"] if name.startswith((".git/", ".monkey/"))]


def test_data_are_shared_and_nobody_can_change_them(lab: Any, jobs: dict[str, str]) -> None:
    for name in ("look", "look2"):
        lab.end(jobs[name])
        seen = json.loads(lab.logs(jobs[name]))
        assert seen["data"] == "1,2,3\n"
        assert (seen["write"], seen["create"], seen["remove"]) == ("PermissionError",) * 3
        assert "/attempts/" not in seen["data_at"] and "/data/" in seen["data_at"]


def test_git_commit_and_dirt_are_recorded(lab: Any, jobs: dict[str, str], folder: Path) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    git = lab.job(jobs["exit"])["code"]["git"]
    assert git == {"commit": commit.stdout.strip(), "branch": "study", "dirty": True}


def test_the_exit_code_is_recorded(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["exit"])
    assert (job["state"], job["reason"], job["exit_code"]) == ("FAILED", "NONZERO_EXIT", 7)
    missing = lab.end(jobs["missing"])
    assert (missing["state"], missing["reason"], missing["exit_code"]) == ("FAILED", "COMMAND_NOT_FOUND", 127)
    assert "no-such-command-here" in missing["message"]


def test_the_time_limit_ends_what_ignores_sigterm(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["limit"])
    assert (job["state"], job["reason"]) == ("TIMED_OUT", "TIME_LIMIT")
    assert lab.logs(jobs["limit"]).startswith("begun")
    assert not [line for _, line in lab.host_of(job).processes() if "trap '' TERM" in line]


def test_a_failing_setup_line_is_shown(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["setup"])
    assert (job["state"], job["exit_code"]) == ("FAILED_SETUP", None)
    said = lab.logs(jobs["setup"])
    assert (
        "preparing" in said and "no-such-program" in said and "not reached" not in said.replace("echo not reached", "")
    )
    assert "no-such-program" in job["message"]


def test_a_broken_requirement_is_shown_in_pips_own_words(lab: Any, jobs: dict[str, str]) -> None:
    job = lab.end(jobs["pip"], timeout_s=120)
    assert (job["state"], job["reason"]) == ("FAILED_SETUP", "ENVIRONMENT_FAILED")
    said = lab.logs(jobs["pip"])
    assert "no-such-package-of-anyone" in said
    assert "No matching distribution found" in said or "not found in the package registry" in said


def test_jobs_at_once_cannot_change_each_others_code(lab: Any, jobs: dict[str, str], go: Any, folder: Path) -> None:
    for name in ("own-a", "own-b"):
        lab.log_says(jobs[name], "changed")
    assert lab.job(jobs["own-a"])["state"] == lab.job(jobs["own-b"])["state"] == "RUNNING"
    for name in ("own-a", "own-b"):
        go(jobs[name])
    for name in ("a", "b"):
        assert lab.end(jobs[f"own-{name}"])["state"] == "SUCCEEDED"
        assert lab.logs(jobs[f"own-{name}"]).splitlines()[-1] == f"# changed by {name} {name}"
    assert "changed by" not in (folder / "probe.py").read_text().replace('"# changed by "', "")


def test_pause_and_resume(lab: Any, jobs: dict[str, str], go: Any) -> None:
    juid = jobs["tick"]
    lab.log_says(juid, "tick 3\n")
    lab.monkey("job", "pause", juid)
    assert lab.job(juid)["state"] == "PAUSED"
    time.sleep(0.3)  # what was on its way
    said = lab.logs(juid)
    time.sleep(0.5)
    assert lab.logs(juid) == said
    lab.monkey("job", "resume", juid)
    assert lab.job(juid)["state"] == "RUNNING"
    lab.log_says(juid, f"tick {said.count('tick') + 3}\n")
    go(juid)
    assert lab.end(juid)["state"] == "SUCCEEDED"
    numbers = [int(line.split()[1]) for line in lab.logs(juid).splitlines()]
    assert numbers == list(range(len(numbers)))  # nothing lost, nothing twice


def test_output_and_logs_while_it_runs(lab: Any, jobs: dict[str, str], go: Any, tmp_path: Path, ended: Any) -> None:
    juid = jobs["persist"]
    lab.log_says(juid, "first is written")
    follower = ended(lab.popen("logs", "-f", juid, cwd=tmp_path))
    assert follower.stdout is not None and follower.stdout.readline() == b"first is written\n"  # and it goes on

    lab.monkey("output", juid, cwd=tmp_path)
    place = tmp_path / "monkey-output" / juid
    assert (place / "results" / "deep" / "first.txt").read_text() == "first\n"
    assert not (place / "results" / "second.txt").exists()
    assert (place / "monkey.log").read_text() == "first is written\n"
    assert lab.job(juid)["state"] == "RUNNING" and follower.poll() is None

    go(juid)
    assert follower.communicate(timeout=30)[0] == b"second is written\n"
    assert follower.returncode == 0
    assert lab.until(juid, "SUCCEEDED")["exit_code"] == 0
    lab.monkey("output", juid, cwd=tmp_path)
    assert (place / "results" / "second.txt").read_text() == "second\n"
    assert (place / "monkey.log").read_text() == "first is written\nsecond is written\n"


def test_run_passes_the_exit_code_and_ctrl_c_leaves_the_job_running(lab: Any, project: Any, ended: Any) -> None:
    folder = project({"a.sh": "echo out; echo err >&2; exit 7\n"})
    passed = ended(lab.popen("run", "-p", "lab", "--cpus", "0.1", "sh", "a.sh", cwd=folder))
    left = ended(
        lab.popen("run", "-p", "lab", "--cpus", "0.1", "sh", "-c", "echo begun; sleep 3; echo done", cwd=folder)
    )
    assert left.stdout is not None and left.stdout.readline() == b"begun\n"
    left.send_signal(2)
    out, err = left.communicate(timeout=20)
    assert left.returncode == 130
    assert out == b"" and b"monkey logs -f" in err
    juid = next(word for line in err.decode().splitlines() if "monkey logs -f" in line for word in [line.split()[-1]])

    out, err = passed.communicate(timeout=60)
    assert passed.returncode == 7
    assert sorted(out.splitlines()) == [b"err", b"out"] and b"FAILED" in err and b"exit code 7" in err
    assert lab.end(juid)["state"] == "SUCCEEDED"
    assert lab.logs(juid) == "begun\ndone\n"


def test_rerun_runs_the_old_code_after_the_folder_has_changed(lab: Any, project: Any) -> None:
    folder = project(
        {
            "say.py": "print(open('data/a').read(), open('words').read())\n",
            "words": "of old",
            "data/a": "data",
            "job.yml": "data:\n  - {name: a, path: data}\nenv: {A: old}\n",
        }
    )
    p = ("-p", "lab", "--cpus", "0.1")
    first = lab.start(folder, *p, "-n", "first", "sh", "-c", 'python3 say.py; echo "$A" "$MONKEY_NAME"')
    assert lab.end(first)["state"] == "SUCCEEDED"
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.write_text("broken {")
    again = lab.json("job", "rerun", first, cwd=folder)
    assert again["juid"] != first
    assert lab.end(again["juid"])["state"] == "SUCCEEDED"
    assert lab.logs(again["juid"]) == lab.logs(first) == "data of old\nold first\n"
