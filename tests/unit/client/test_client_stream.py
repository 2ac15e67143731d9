"""The stream: what the core hears, cut anywhere, is whole and comes once."""

from __future__ import annotations

import base64
import os
import signal
import time
from pathlib import Path
from typing import Any

from .conftest import until


def logs_of(stream: Any, juid: str) -> list[tuple[int, bytes]]:
    return [
        (message["offset"], base64.b64decode(message["data"]))
        for message in stream.seen
        if message["type"] == "log" and message["juid"] == juid
    ]


def test_hello_then_machine_then_events_with_the_log_before_the_end(host: Any) -> None:
    attempt = host.launch("sh", "-c", "echo one; sleep 0.3; echo two")
    stream = host.stream(log_offsets={})
    stream.wait(lambda message: message["type"] == "ended")
    stream.wait(lambda message: message["type"] == "machine")
    hello = stream.seen[0]
    assert hello["type"] == "hello"
    assert hello["version"] == host.version
    assert (hello["acked"], hello["last_seq"] >= 1) == (0, True)
    assert hello["attempts"][0]["juid"] == attempt.juid
    assert [event["seq"] for event in stream.events()] == [1, 2, 3, 4]
    kinds = [message["type"] for message in stream.seen if message["type"] not in ("hello", "machine")]
    assert [kind for kind in kinds if kind != "log"] == ["accepted", "setup", "started", "ended"]
    assert kinds[-1] == "ended"
    assert logs_of(stream, attempt.juid)[0][0] == 0
    assert b"".join(data for _offset, data in logs_of(stream, attempt.juid)) == b"one\ntwo\n"
    machine = next(message for message in stream.seen if message["type"] == "machine")
    assert machine["cpus"] >= 1 and machine["memory_total_mb"] > machine["memory_available_mb"] > 0
    assert machine["disk_free_mb"] > 0


def test_reconnects_lose_and_repeat_nothing(host: Any) -> None:
    script = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.02; done"
    attempts = [host.launch("bash", "-c", script) for _ in range(2)]
    offsets = {attempt.key: 0 for attempt in attempts}
    logs = {attempt.key: b"" for attempt in attempts}
    seqs: list[int] = []
    ends = 0
    deadline = time.monotonic() + 60
    while ends < 2 and time.monotonic() < deadline:
        stream = host.stream(log_offsets=offsets)
        stream.wait(lambda message: message["type"] == "log" or "seq" in message)
        stream.read(0.05)
        stream.process.kill()  # the connection is cut
        stream.process.wait()
        acked = 0
        for message in stream.seen:
            if message["type"] == "log":
                key = f"{message['juid']}.{message['attempt']}"
                assert message["offset"] == offsets[key]
                data = base64.b64decode(message["data"])
                logs[key] += data
                offsets[key] += len(data)
            elif "seq" in message:
                seqs.append(message["seq"])
                acked = message["seq"]
                ends += message["type"] == "ended"
        if acked:
            confirm = host.stream(log_offsets=offsets)
            confirm.say(op="ack", seq=acked)
            confirm.say(op="ping", id="p")
            confirm.wait(lambda message: message.get("id") == "p")
            until(lambda seq=acked: host.ask(op="ping")["acked"] == seq)
            confirm.process.kill()
            confirm.process.wait()
    assert seqs == list(range(1, 9))
    expected = "".join(f"line {number}\n" for number in range(400)).encode()
    assert [logs[attempt.key] for attempt in attempts] == [expected, expected]


def test_acknowledged_events_are_gone_and_numbers_go_on(host: Any) -> None:
    host.ended(host.launch("true"))
    stream = host.stream()
    stream.wait(lambda message: message["type"] == "ended")
    stream.say(op="ack", seq=4)
    stream.close()
    until(lambda: host.ask(op="ping")["acked"] == 4)
    assert os.path.getsize(os.path.join(host.home, "journal", "events")) == 0
    host.kill_daemon()
    host.ended(host.launch("true"))
    assert [event["seq"] for event in host.journal()] == [5, 6, 7, 8]


def test_stream_survives_the_daemon(host: Any) -> None:
    attempt = host.launch("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo end")
    stream = host.stream()
    stream.wait(lambda message: message["type"] == "started")
    host.kill_daemon()
    until(lambda: stream.read() and host.ask(op="ping"))
    Path(attempt.path("work/go")).touch()
    stream.wait(lambda message: message["type"] == "ended")
    assert [event["seq"] for event in stream.events()] == [1, 2, 3, 4]


def test_stream_starts_the_daemon_when_none_runs(host: Any) -> None:
    host.kill_daemon()
    stream = host.stream()
    stream.wait(lambda message: message["type"] == "hello")
    assert host.daemon_pid()


def test_orders_through_the_stream_get_replies(host: Any) -> None:
    attempt = host.launch("sleep", "100", lease_s=60)
    host.running(attempt)
    stream = host.stream()
    who = {"juid": attempt.juid, "attempt": 1}
    for number, operation in enumerate(("pause", "resume")):
        stream.say(op=operation, id=number, **who)
        assert stream.wait(lambda message, number=number: message.get("id") == number)["ok"]
    stream.say(op="pause", id="x", juid="unknown", attempt=1)
    refused = stream.wait(lambda message: message.get("id") == "x")
    assert not refused["ok"] and "UNKNOWN" in refused["error"]
    stream.say(op="dance", id="y")
    assert "unknown op" in stream.wait(lambda message: message.get("id") == "y")["error"]
    stream.say(op="cancel", id="z", **who)
    stream.wait(lambda message: message["type"] == "ended" and message["state"] == "CANCELLED")
    stream.say(op="ping", id="p")
    assert stream.wait(lambda message: message.get("id") == "p")["result"]["version"] == host.version


def test_end_of_input_ends_the_stream_and_no_job(host: Any) -> None:
    attempt = host.launch("sleep", "100")
    stream = host.stream()
    stream.wait(lambda message: message["type"] == "started")
    stream.close()
    assert stream.process.returncode == 0
    assert attempt.state() == "RUNNING"


def test_a_core_that_does_not_read_holds_back_nobody(host: Any) -> None:
    attempt = host.launch("sh", "-c", "yes | head -c 5000000; echo; echo end")
    stuck = host.stream()
    os.kill(stuck.process.pid, signal.SIGSTOP)
    other = host.stream()
    other.wait(lambda message: message["type"] == "ended")
    os.kill(stuck.process.pid, signal.SIGCONT)
    stuck.wait(lambda message: message["type"] == "ended")
    for stream in (stuck, other):
        data = b"".join(data for _offset, data in logs_of(stream, attempt.juid))
        assert len(data) == 5_000_005 and data.endswith(b"end\n")


def test_finished_logs_are_sent_again_only_when_asked_for(host: Any) -> None:
    attempt = host.launch("echo", "hello")
    host.ended(attempt)
    first = host.stream()
    first.wait(lambda message: message["type"] == "ended")
    first.say(op="ack", seq=4)
    first.close()
    until(lambda: host.ask(op="ping")["acked"] == 4)
    second = host.stream()
    second.say(op="ping", id=1)
    second.wait(lambda message: message.get("id") == 1)
    second.close()
    assert logs_of(second, attempt.juid) == []
    third = host.stream(log_offsets={attempt.key: 2})
    third.wait(lambda message: message["type"] == "log")
    assert logs_of(third, attempt.juid) == [(2, b"llo\n")]


def test_removed_attempts_are_not_listed(host: Any) -> None:
    attempt = host.launch("true")
    host.ended(attempt)
    host.order("remove", attempt)
    assert not os.path.exists(attempt.path("work")) and not os.path.exists(attempt.path("log"))
    stream = host.stream()
    assert stream.wait(lambda message: message["type"] == "hello")["attempts"] == []
