"""The SDK in a script of its own, as a researcher writes one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

SWEEP = r"""
import json, time
from monkeycli import MonkeyCLI

began = time.monotonic()
jobs = [MonkeyCLI().run(f"sh say.sh {n} 'two words'", provider="lab", cpus=0.1, name=f"sweep-{n}") for n in range(6)]
handed_in_s = time.monotonic() - began
listed = MonkeyCLI(provider="lab", cpus=0.1).run(["sh", "-c", "sleep 600 # $(not run) 'as it is'"])
states = [job.wait() for job in jobs]
folder = jobs[3].output()
while listed.state != "RUNNING":
    time.sleep(0.1)
early = listed.wait(timeout_s=0.2)
listed.cancel()
print(json.dumps({
    "handed_in_s": handed_in_s,
    "still_going": early,
    "states": states,
    "logs": [job.logs() for job in jobs],
    "lines": list(jobs[0].logs(follow=True)),
    "codes": [job.exit_code for job in jobs],
    "result": (folder / "out" / "n").read_text(),
    "cancelled": listed.wait(),
    "known": MonkeyCLI().job(jobs[0].nickname).juid == jobs[0].juid,
    "command": listed.info()["command"],
}))
"""


def test_a_sweep_from_python(lab: Any, project: Any) -> None:
    folder = project(
        {
            "say.sh": 'echo "n is $1, $2"\necho "$1" > out/n\ntest "$1" != 5\n',
            "job.yml": "persist: [out]\n",
            "sweep.py": SWEEP,
        }
    )
    line = [sys.executable, "sweep.py"]
    done = subprocess.run(line, cwd=folder, env=lab.home.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["states"] == ["SUCCEEDED"] * 5 + ["FAILED"]
    assert said["codes"] == [0] * 5 + [1]
    assert said["logs"] == [f"n is {n}, two words\n" for n in range(6)]
    assert said["lines"] == ["n is 0, two words\n"]
    assert said["result"] == "3\n"
    assert said["still_going"] == "RUNNING" and said["cancelled"] == "CANCELLED"
    assert said["known"] is True
    assert said["command"] == ["sh", "-c", "sleep 600 # $(not run) 'as it is'"]
    # Handing in waits for no machine: a playbook run alone takes longer than this.
    assert said["handed_in_s"] < 6 * 1.5


def test_bad_input_is_an_exception_and_hands_in_nothing(lab: Any, project: Any) -> None:
    folder = project({"a.py": ""})
    script = (
        "from monkeycli import MonkeyCLI, UsageProblem\n"
        "bad = {'command': \"sh 'open\"}, {'command': 'x', 'provider': 'lob'}, {'command': 'x', 'cpu': 2}, {}\n"
        "for words in bad:\n"
        "    try:\n        MonkeyCLI().run(**words)\n    except UsageProblem as problem:\n        print(problem)\n"
    )
    before = lab.json("list", "jobs")
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, cwd=folder, env=lab.home.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    quote, provider, flag, none = done.stdout.splitlines()
    assert "command" in quote and "did you mean lab" in provider and "did you mean cpus" in flag and "command" in none
    assert len(lab.json("list", "jobs")) == len(before)
