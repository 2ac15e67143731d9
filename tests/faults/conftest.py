"""What every fault test shares: long or short, the recorder of figures, and the table at the end.

pytest tests/faults                                     short forms, as in `make test`
pytest tests/faults --long --fault-table FILE           long forms; rows are added to FILE (`make faults`)
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).resolve().parent
# Test modules say `from witness import Witness`.
sys.path.insert(0, str(_HERE))

from siege import Siege, stop  # noqa: E402
from witness import Witness  # noqa: E402

_FIGURES = ("lost", "twice", "hurt", "left")
_COLUMNS = ("fault", "done", *_FIGURES, "seconds")
_rows: list[dict[str, Any]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known only when pytest is called with tests/faults; without it the short forms run."""
    parser.addoption("--long", action="store_true", default=False, help="fault tests in their long form")
    parser.addoption("--fault-table", default=None, metavar="FILE", help="add each fault's figures to FILE, JSON lines")


def _option(config: pytest.Config, name: str) -> Any:
    return config.getoption(name, default=None)


@pytest.fixture(scope="session")
def long(pytestconfig: pytest.Config) -> bool:
    """Whether the long form is asked for."""
    return bool(_option(pytestconfig, "--long"))


class FaultRecorder:
    """Takes down what a fault did. The clock of ``seconds`` starts with the test's fixtures."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._began = time.monotonic()

    def row(self, *, fault: str, done: str, lost: int = 0, twice: int = 0, hurt: int = 0, left: int = 0) -> None:
        """Write a row, then fail unless all four figures are 0.

        Args:
            fault: what was broken, in a few words.
            done: how often, of how much ("500 kills, 2,000 jobs").
            lost: acknowledged jobs that are gone or never ended.
            twice: attempts that ran twice.
            hurt: healthy jobs that were ended or restarted.
            left: processes left behind.
        """
        figures = {"lost": lost, "twice": twice, "hurt": hurt, "left": left}
        self._write({"fault": fault, "done": done, **figures})
        assert not any(figures.values()), f"{fault} ({done}): {figures}, all must be 0"

    def sabotage(self, *, fault: str, done: str, caught: bool) -> None:
        """Write a row of a control: a protection was taken away; fails unless the test's own check noticed it."""
        self._write({"fault": fault, "done": done, "caught": caught})
        assert caught, f"{fault} ({done}): the check passed without the protection that it is to prove"

    def _write(self, row: dict[str, Any]) -> None:
        row["seconds"] = round(time.monotonic() - self._began, 1)
        _rows.append(row)
        sys.stderr.write(f"\n{json.dumps(row)}\n")
        if self._file:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


@pytest.fixture
def fault(pytestconfig: pytest.Config) -> FaultRecorder:
    """The recorder of this test."""
    return FaultRecorder(_option(pytestconfig, "--fault-table"))


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """Counts executions of this test's jobs on this machine."""
    return Witness(tmp_path / "witness")


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first ``siege`` leaves a copy of its home."""
    return tmp_path_factory.mktemp("warm") / "mh"


@pytest.fixture
def siege(warm: Path, monkey_home: Any, witness: Witness) -> Siege:
    """A main node to be broken, at rest; its core has looked at this machine, and ``warm`` was a first job.

    A copy where there is one: the look and the client's installation cost seconds.
    """
    siege = Siege(monkey_home, witness)
    if warm.exists():
        shutil.copytree(warm, monkey_home.path, symlinks=True)
        return siege
    core = siege.start()
    siege.answers(core)
    siege.submit("warm")
    siege.until_over(120)
    stop(core, signal.SIGTERM)
    siege.acknowledged.clear()
    monkey_home.close()
    shutil.copytree(monkey_home.path, warm, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    return siege


# Half a minute and more each, in their short form too: with them `make test` would pass its 20 minutes on 2 cores.
_FOR_MAKE_FAULTS = {
    "test_fault_disk_full_under_the_core",
    "test_fault_sshd_killed",
    "test_fault_events_replayed",
    "test_fault_pause_and_resume_in_every_state",
    "test_fault_host_powered_off",
    "test_fault_link_down_longer_than_the_lease",
    "test_fault_ssh_stopped",
    "test_sabotage_no_lease_check_on_the_host",
    "test_fault_core_stopped",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make faults` what no other run has the time for; a test that is named on the command line runs."""
    if _option(config, "--long") or any("test_faults_" in str(arg) for arg in config.args):
        return
    left_out = [item for item in items if getattr(item, "originalname", item.name) in _FOR_MAKE_FAULTS]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """The table, after a long session."""
    if not _option(config, "--long"):
        return
    terminalreporter.section("faults")
    for line in _table(_all_rows(_option(config, "--fault-table")), exitstatus):
        terminalreporter.write_line(line)


def _all_rows(file: str | None) -> list[dict[str, Any]]:
    """The newest row of each fault; of earlier sessions too when they wrote to the same file."""
    rows = _rows
    if file and Path(file).exists():
        rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    return list({row["fault"]: row for row in rows}.values())


def _table(rows: list[dict[str, Any]], exitstatus: int) -> Iterator[str]:
    faults = [row for row in rows if "caught" not in row]
    controls = [row for row in rows if "caught" in row]
    yield from _columns(_COLUMNS, [[str(row[name]) for name in _COLUMNS] for row in faults])
    if controls:
        yield ""
        cells = [[row["fault"], row["done"], "yes" if row["caught"] else "NO", str(row["seconds"])] for row in controls]
        yield from _columns(("taken away", "done", "caught", "seconds"), cells)
    wrong = [row["fault"] for row in rows if not row.get("caught", True) or any(row.get(name) for name in _FIGURES)]
    verdict = "all as expected"
    if wrong or exitstatus:
        verdict = f"NOT as expected: {', '.join(wrong) or 'see above'}"
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    yield ""
    yield (
        f"{datetime.date.today():%Y-%m-%d}, {os.cpu_count()} CPUs, {system}, Linux {platform.release()}, "
        f"Python {platform.python_version()}: {verdict}"
    )


def _columns(titles: tuple[str, ...], rows: list[list[str]]) -> Iterator[str]:
    """A table that is read as it is, and as Markdown."""
    widths = [max(len(row[i]) for row in [list(titles), *rows]) for i in range(len(titles))]
    for row in (list(titles), ["-" * width for width in widths], *rows):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
