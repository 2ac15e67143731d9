"""What a person says to the scheduler and hears of it: flags, changes, policies, drained hosts, reasons, events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monkey.apiclient import Api
from monkey.follow import events_of
from monkey.paths import Home
from monkeycli import MonkeyCLI

Run = Callable[..., tuple[int, bytes, str]]

KOB = "26-11-21-001"


def test_flags_fill_the_submission_and_what_is_not_given_is_not_sent(monkey: Run, project: Path, core: Any) -> None:
    assert monkey("run", "-d", "x")[0] == 0
    (project / "job.yml").write_text("retries: 9\nlease: 90\nphase_limits: {setup: 10m}\nqueue: mine\n")
    flags = "--priority 900 --retries 3 --retry-on 137,lost --retry-delay 0 --depends-on kob,afterany:bab"
    more = "--depends-on afterok:zaz --queue sweep --max-parallel 4 --lease 5m"
    assert monkey("run", "-d", *flags.split(), *more.split(), "x")[0] == 0
    plain, sent = core.submissions
    said = ("priority", "retries", "retry_on", "retry_delay_s", "lease_s", "phase_limits_s", "queue", "max_parallel")
    assert not {*said, "depends_on"} & set(plain)
    assert [sent[key] for key in said] == [900, 3, [137, "lost"], 0, 300, {"setup": 600}, "sweep", 4]
    assert [(one["job"], one["when"]) for one in sent["depends_on"]] == [
        ("kob", "success"), ("bab", "end"), ("zaz", "success"),
    ]  # fmt: skip
    from monkey.api.models import Submission

    for submission in (plain, sent):
        Submission.model_validate(submission)


def test_from_python_a_job_may_depend_on_jobs(project: Path, core: Any) -> None:
    first = MonkeyCLI(retries=2).run("x")
    second = MonkeyCLI().run("x", depends_on=first)
    MonkeyCLI().run("x", depends_on=[first, f"afterany:{second.juid}"], retry_on=[1, "lost"], priority=0)
    sent = core.submissions
    assert sent[0]["retries"] == 2
    assert sent[1]["depends_on"] == [{"job": first.juid, "when": "success"}]
    assert [one["when"] for one in sent[2]["depends_on"]] == ["success", "end"]
    assert (sent[2]["retry_on"], sent[2]["priority"]) == ([1, "lost"], 0)


def test_from_python_a_job_is_paused_reset_rerun_and_explained(project: Path, core: Any) -> None:
    sentences = [{"at": None, "text": "A."}]
    core.answers[f"GET /jobs/{KOB}/explain"] = {"juid": KOB, "state": "QUEUED", "sentences": sentences}
    job = MonkeyCLI().run("x")
    job.pause()
    job.resume()
    job.reset()
    assert [request.rpartition("/")[2] for request in core.requests[-3:]] == ["pause", "resume", "reset"]
    assert job.rerun().juid == "26-11-21-002"
    assert job.explain() == ["A."]


def test_reset_and_update(monkey: Run, core: Any) -> None:
    core.add_job(state="FAILED")
    assert monkey("job", "reset", "kob")[0] == 0 and core.requests[-1] == f"POST /jobs/{KOB}/reset"
    core.refuse[f"POST /jobs/{KOB}/reset"] = (400, "job", f"{KOB} is RUNNING; only a job that has ended can be reset")
    code, out, err = monkey("job", "reset", "kob")
    assert (code, out) == (2, b"") and "only a job that has ended" in err and err.count("\n") == 1
    changed = {"juid": KOB, "nickname": "kob", "state": "QUEUED", "priority": 0, "depends_on": [], "max_parallel": None}
    core.answers["PATCH /jobs/kob"] = changed
    words = ("--priority", "0", "--depends-on", "", "--max-parallel", "none")
    code, out, _ = monkey("job", "update", "kob", *words)
    assert core.bodies["PATCH /jobs/kob"] == {"priority": 0, "depends_on": [], "max_parallel": None}
    assert out.decode() == f"{KOB} (kob) QUEUED: priority 0; depends on nothing; max_parallel none\n"
    monkey("job", "update", "kob", "--depends-on", "bab,afterany:zaz")
    assert [one["when"] for one in core.bodies["PATCH /jobs/kob"]["depends_on"]] == ["success", "end"]


def test_rerun_of_all_that_failed(monkey: Run, core: Any) -> None:
    core.answers["POST /jobs/rerun"] = {"jobs": [core.add_job(name="sweep"), core.add_job()]}
    code, out, _ = monkey("job", "rerun", "--failed", "-p", "lab", "--name", "sweep")
    assert (code, out.decode().splitlines()[0]) == (0, f"{KOB} (kob) QUEUED sweep")
    assert core.bodies["POST /jobs/rerun"] == {"failed": True, "provider": "lab", "name": "sweep"}
    assert len(json.loads(monkey("job", "rerun", "--failed", "--json")[1])) == 2
    assert monkey("job", "rerun", "--failed", "-p", "lap")[0] == 2
    core.answers["POST /jobs/rerun"] = {"jobs": []}
    code, out, err = monkey("job", "rerun", "--failed")
    assert (code, out) == (0, b"") and err.startswith("nothing to run again")


def test_rerun_of_all_that_failed_where_nothing_ever_ran(monkey: Run, home: Home) -> None:
    assert monkey("job", "rerun", "--failed", "--json")[:2] == (0, b"[]\n")
    assert monkey("events")[:2] == (0, b"")
    assert not home.root.exists()


def _scheduler(core: Any, policy: str) -> dict[str, Any]:
    policies = [{"name": name, "description": f"as {name}"} for name in ("smart", "frugal")]
    waiting = [{"reason": "WAITING_FOR_HOST", "message": "waits for host n1", "jobs": 2, "first": KOB}]
    hosts = [{**core.providers[1]["hosts"][0], "provider": "lab", "state": "drained", "drained": "new disk"}]
    return {"policy": policy, "policies": policies, "queued": 2, "waiting": waiting, "hosts": hosts}


def test_the_scheduler_is_shown_and_changed(monkey: Run, core: Any) -> None:
    core.answers["GET /scheduler"] = _scheduler(core, "smart")
    text = monkey("scheduler")[1].decode()
    assert text == monkey("scheduler", "info")[1].decode()
    for words in ("smart: as smart", "2 jobs", "WAITING_FOR_HOST", KOB, "waits for host n1", "drained", "new disk"):
        assert words in text
    assert json.loads(monkey("scheduler", "--json")[1])["queued"] == 2
    core.answers["PUT /scheduler"] = _scheduler(core, "frugal")
    assert monkey("scheduler", "--policy", "frugal")[:2] == (0, b"policy: from smart to frugal\n")
    assert core.bodies["PUT /scheduler"] == {"policy": "frugal"}
    core.answers["PUT /scheduler"] = _scheduler(core, "smart")
    assert monkey("scheduler", "--policy", "smart")[:2] == (0, b"policy: smart, as before\n")


def test_a_host_is_drained_and_resumed(monkey: Run, core: Any) -> None:
    host = core.providers[1]["hosts"][0]
    core.answers["POST /providers/lab/hosts/localhost/drain"] = core.providers[1]
    core.answers["POST /providers/lab/hosts/localhost/resume"] = core.providers[1]
    host["running"] = 1
    out = monkey("provider", "drain", "lab", "localhost", "--reason", "new disk")[1]
    assert b"is drained" in out and b"1 job goes on there" in out
    assert core.bodies["POST /providers/lab/hosts/localhost/drain"] == {"reason": "new disk"}
    assert b"gets jobs again" in monkey("provider", "resume", "lab", "localhost")[1]
    host.update(state="drained", drained="drained by you: new disk", message="")
    for words in (["list", "instances"], ["info", "provider", "lab"], ["provider", "check", "lab"]):
        assert b"drained by you: new disk" in monkey(*words)[1]


@pytest.fixture
def _two_hours_east() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC-2")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_two_hours_east")
def test_explain(monkey: Run, core: Any) -> None:
    core.add_job()
    waits = {"at": None, "text": "Waits \x1b[2J until 2026-11-21T09:05:00.123Z."}
    sentences = [{"at": "2026-11-21T09:00:00.000Z", "text": "Handed in."}, waits]
    core.answers["GET /jobs/kob/explain"] = {"juid": KOB, "state": "QUEUED", "sentences": sentences}
    code, out, _ = monkey("explain", "kob")
    assert code == 0 and out.decode().splitlines() == [
        f"{KOB} QUEUED", "2026-11-21 11:00:00  Handed in.", " " * 21 + "Waits \\x1b[2J until 2026-11-21 11:05:00.",
    ]  # fmt: skip
    assert json.loads(monkey("explain", "kob", "--json")[1])["sentences"] == sentences


def _event(number: int, **fields: Any) -> bytes:
    made = {"at": f"2026-11-21T09:00:{number:02d}.000Z", "juid": KOB, "nickname": "kob", "attempt": 1, "host": "n1",
            "state": "RUNNING", "reason": "STARTED", "message": f"number {number}", **fields}  # fmt: skip
    return json.dumps(made).encode() + b"\n"


def test_events_are_a_line_each(monkey: Run, core: Any) -> None:
    core.add_job()
    core.answers["GET /events?limit=50&follow=0"] = [_event(1, message="a\x1bb") + _event(2)]
    core.answers[f"GET /events?job={KOB}&limit=1&follow=0"] = [_event(2, attempt=0, host=None)]
    code, out, _ = monkey("events")
    first, second = out.decode().splitlines()
    assert code == 0 and f"{KOB}.1 (kob)  RUNNING       STARTED on n1: a\\x1bb" in first and "number 2" in second
    assert b"(kob)  RUNNING       STARTED: number 2\n" in monkey("events", "kob", "-n", "1")[1]
    changes = [json.loads(line) for line in monkey("events", "--json")[1].splitlines()]
    assert [change["message"] for change in changes] == ["a\x1bb", "number 2"]


def test_followed_events_survive_a_restart_and_come_once(core: Any, home: Home) -> None:
    """The answer ends with the core; the next core shows old ones too, and one that was recorded meanwhile."""
    # A new core may know changes that are older than the first one asked for: those were never wanted.
    again = _event(0) + _event(1) + _event(2) + _event(3)
    core.answers["GET /events?limit=2&follow=1"] = [_event(1) + _event(2)]
    core.answers["GET /events?limit=2000&follow=0"] = [again]
    core.answers["GET /events?limit=2000&follow=1"] = [again[:-20], again + _event(4), again + _event(4) + _event(5)]
    seen = []
    for event in events_of(Api(home), lambda: None, limit=2):
        seen.append(event["message"])
        if seen[-1] == "number 5":
            break
    assert seen == [f"number {number}" for number in (1, 2, 3, 4, 5)]


def test_what_a_job_waits_for_is_in_the_list(monkey: Run, core: Any) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 1800))
    core.add_job(reason="WAITING_FOR_DEPENDENCY")
    core.add_job(reason="RETRYING", not_before=soon)
    core.add_job(held=True)
    core.add_job()
    states = [line.split("mnist")[1] for line in monkey("list", "jobs")[1].decode().splitlines()[1:]]
    assert "QUEUED (for other jobs)" in states[0] and "QUEUED (tried again in 30 min)" in states[1]
    assert "QUEUED (held)" in states[2] and "(" not in states[3]


def test_info_job_shows_what_the_scheduler_goes_by(monkey: Run, core: Any) -> None:
    core.add_job(priority=500)
    assert b"priority" not in monkey("info", "job", "kob")[1]
    core.add_job(priority=0, retries=3, retries_used=1, retry_on=None, lease_s=900, queue="q", max_parallel=2,
                 depends_on=[{"job": KOB, "when": "end"}], phase_limits_s={"setup": 60.0}, held=True)  # fmt: skip
    lines = dict(line.split("  ", 1) for line in monkey("info", "job", "bab")[1].decode().splitlines())
    shown = {key.strip(): value.strip() for key, value in lines.items()}
    assert (shown["priority"], shown["lease"], shown["phase limits"]) == ("0", "15 min", "setup 60 s")
    assert shown["retries"] == "1 of 3 used; after failed, preempted, lost"
    assert shown["depends on"] == f"{KOB} (after its end)" and shown["queue"] == "q, at most 2 at once"
    assert "monkey job resume" in shown["held"]


def test_a_full_disk_is_in_the_status(monkey: Run, core: Any) -> None:
    assert b"disk is full" not in monkey("core", "status")[1]
    core.answers["GET /status"] = {
        "pid": 1, "version": core.version, "uptime_s": 1, "home": "h", "jobs": {}, "full": True,
    }  # fmt: skip
    assert b"disk is full" in monkey("core", "status")[1]


def test_routes_of_the_record(core: Any, home: Home) -> None:
    figures = {"jobs": 1, "documents": 2, "seq": 3, "state_bytes": 4, "journal_bytes": 5, "full": False}
    core.answers.update({"GET /state": figures, "POST /state/compact": figures, "GET /state/export": [b"a\nb\n"]})
    api = Api(home)
    assert api.state() == api.state_compact() == figures
    assert b"".join(api.state_export()) == b"a\nb\n"
