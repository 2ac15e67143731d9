"""A researcher's day: three machines, thirty trainings over them, the results at home and nothing left behind."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.hosts

JOBS = 30
TOMBSTONE = {"spec.json", "exit.json", "ended.json", "tombstone.json"}


def _sent(stderr: str) -> str:
    found = re.search(r"^sent (.*)$", stderr, re.MULTILINE)
    return found[1] if found else "nothing"


def test_thirty_trainings_over_three_hosts(lab: Any, example: Path) -> None:
    juids = [
        lab.start(example, "-p", "lab", "--name", f"rate-{n}", "python3", "mnist.py", "--n-epochs", "1", "--hidden", "8",
                  "--learning-rate", f"0.{n + 10}")
        for n in range(JOBS)
    ]  # fmt: skip
    assert len(set(juids)) == JOBS
    jobs = [lab.end(juid, timeout_s=180) for juid in juids]
    assert Counter(job["state"] for job in jobs) == {"SUCCEEDED": JOBS}, [job["message"] for job in jobs]
    print(Counter(job["host"] for job in jobs))
