"""A queue of 100,000 jobs: the record, the loop and the commands do not feel it."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monkey.api.models import Submission
from monkey.apiclient import Api
from monkey.jobs import _new, now
from monkey.names import juid_for, nickname_for
from monkey.paths import Home
from monkey.store import Change, Store, number_change
from monkey.submit import fields_of

_BATCH = 2000
_CHANGES = 200


def _fill(home: Path, count: int) -> list[str]:
    """A record of so many queued jobs, as the API would have made them; their JUIDs."""
    home.mkdir(mode=0o700, parents=True)
    moment = now()
    day = moment.astimezone().date()
    body = {"command": ["python3", "train.py"], "name": "sweep", "resources": {"cpus": 1.0}, "env": {"SEED": "1"}}
    fields = fields_of(Submission.model_validate(body), None, None)  # type: ignore[arg-type]
    juids = [juid_for(day, n) for n in range(1, count + 1)]
    with Store.open(home) as store:
        for begin in range(0, count, _BATCH):
            changes = [number_change(f"{day:%y-%m-%d}", min(begin + _BATCH, count))]
            for order in range(begin, min(begin + _BATCH, count)):
                # Held: this machine is to answer, not to run them.
                own = {"command": ["python3", "train.py", "--lr", f"0.{order}"], "order": order}
                job = {**_new({**fields, **own}, juids[order], nickname_for(order), moment), "held": True}
                changes.append(Change.put("jobs", juids[order], job))
            store.commit(changes)
    return juids


def _core(home: Any) -> tuple[subprocess.Popen[bytes], float]:
    """A core that answers, and the seconds that it took."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "monkey.core", "--home", str(home.path)], env=home.env)
    api = Api(Home(home.path))
    while True:
        try:
            api.jobs(limit=1)
            return process, time.monotonic() - began
        except Exception:
            assert process.poll() is None and time.monotonic() - began < 120
            time.sleep(0.02)


def _change_s(home: Any, juids: list[str]) -> float:
    """Seconds of one change through the API: the median of many."""
    api, took = Api(Home(home.path)), []
    for n in range(_CHANGES):
        began = time.perf_counter()
        api.change(juids[n % len(juids)], {"priority": n})
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_fault_a_long_queue(make_monkey_home: Callable[[str], Any], fault: Any, long: bool) -> None:
    count = 100_000 if long else 5_000
    change_s = {}
    for name, size in (("few", 100), ("many", count)):
        home = make_monkey_home(name)
        juids = _fill(home.path, size)
        process, restart_s = _core(home)
        try:
            change_s[name] = _change_s(home, juids)
            began = time.monotonic()
            listed = home.monkey("list", "jobs", "-n", "20", check=True)
            list_s = time.monotonic() - began
            assert juids[-1] in listed.stdout and len(listed.stdout.splitlines()) == 21
            rss_mb = _rss_mb(process.pid)
            lost = size - Api(Home(home.path)).status()["jobs"]["QUEUED"]
        finally:
            os.kill(process.pid, signal.SIGTERM)
            process.wait(60)
    ratio = change_s["many"] / change_s["few"]
    if long:
        assert list_s <= 1 and ratio <= 1.5 and restart_s <= 5 and rss_mb < 500, (list_s, ratio, restart_s, rss_mb)
    speeds = f"list -n 20 {list_s:.2f} s, change {ratio:.2f} x of 100 jobs', restart {restart_s:.1f} s"
    fault.row(
        fault=f"{count:,} queued jobs",
        done=f"{speeds}, {rss_mb:.0f} MB",
        lost=lost,
    )
