"""The end of a command that comes while the daemon is looking at its attempt is journalled all the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible_collections.monkey.runner.plugins.module_utils.client.attempt import Attempt, accept
from ansible_collections.monkey.runner.plugins.module_utils.client.daemon import Daemon
from ansible_collections.monkey.runner.plugins.module_utils.client.journal import Journal
from ansible_collections.monkey.runner.plugins.module_utils.client.reporting import Reporter
from ansible_collections.monkey.runner.plugins.module_utils.client.spec import check_spec


class EndsMeanwhile(Reporter):
    """The command ends just after the files were read."""

    def report(self, attempt: Attempt) -> bool:
        fresh = super().report(attempt)
        if attempt.exit() is None:
            attempt.finish("SUCCEEDED", "EXITED", "Exited with code 0.")
        return fresh


def test_an_end_between_two_looks_is_not_lost(tmp_path: Path) -> None:
    for name in ("attempts", "journal"):
        (tmp_path / name).mkdir()
    journal = Journal(str(tmp_path / "journal"))
    attempt = accept(str(tmp_path), check_spec({"juid": "t-1", "attempt": 1, "command": ["true"]}), 1)
    dropped: list[str] = []
    parts: Any = SimpleNamespace(
        _reporter=EndsMeanwhile(str(tmp_path), journal),
        _expecting=set(),
        leases=SimpleNamespace(drop=lambda key: None),
        _server=None,
        keepers=SimpleNamespace(drop=dropped.append),
        slots=SimpleNamespace(give_back=lambda key: None),
    )
    Daemon.refresh(parts, attempt)
    assert dropped == [], "whoever drops it now never hears of its end"
    Daemon.refresh(parts, attempt)  # as the end of its keeper calls it
    assert dropped == [attempt.key]
    assert [event["type"] for event in journal.after(0, 10)] == ["accepted", "ended"]
