"""How things look: times, sizes, states, tables. Rich is imported only when a person looks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

_STATE_COLOURS = {
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "DISPATCHING": "blue",
    "CLEANUP": "blue",
    "QUEUED": "yellow",
    "PAUSED": "yellow",
    "RECOVERING": "yellow",
    "FAILED": "red",
    "FAILED_SETUP": "red",
    "TIMED_OUT": "red",
    "LOST": "red",
    "CANCELLED": "magenta",
    "drained": "magenta",
    "up": "green",
    "ready": "green",
    "down": "red",
    "unreachable": "red",
}


def person_looks(stream: Any = None) -> bool:
    """Whether a terminal is at the other end (of standard output when none is named)."""
    return bool((stream or sys.stdout).isatty())


def clean(value: object) -> str:
    """Text that cannot steer a terminal: control characters are shown as escapes, line breaks too."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def size(count: int | float | None) -> str:
    """Bytes for people: `812 B`, `3.4 MB` (powers of 1000, as disks and networks are sold)."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def files_and_bytes(files: int, count: int) -> str:
    """`1 file, 12 B`."""
    return f"{files} file{'' if files == 1 else 's'}, {size(count)}"


def moment(iso: str | None) -> float | None:
    """Seconds since the epoch of an ISO 8601 time of the API."""
    return None if not iso else datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()


def span(seconds: float) -> str:
    """A length of time: `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `4 d 3 h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def ago(iso: str | None) -> str:
    """`3 min ago`, or nothing."""
    then = moment(iso)
    return "" if then is None else f"{span(time.time() - then)} ago"


def clock(iso: str | None) -> str:
    """Local time: `2026-11-21 10:15:02`, or nothing."""
    then = moment(iso)
    return "" if then is None else f"{datetime.fromtimestamp(then, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def local(iso: str | None) -> str:
    """Local time and how long ago, or until then: `2026-11-21 10:15:02 (3 min ago)`, `… (in 12 s)`."""
    then = moment(iso)
    if then is None:
        return ""
    left = then - time.time()
    return f"{clock(iso)} ({f'in {span(left)}' if left > 0.5 else ago(iso)})"


def took(job: dict[str, Any]) -> str:
    """How long a job has run, or ran."""
    started, finished = moment(job.get("started_at")), moment(job.get("finished_at"))
    return "" if started is None else span((finished or time.time()) - started)


def command_line(command: Sequence[str], limit: int | None = None) -> str:
    """The command as one would type it, on one line."""
    import shlex

    line = clean(shlex.join(command))
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def state_words(job: dict[str, Any]) -> str:
    """`DISPATCHING (setup)`, `RUNNING (cancelling)`."""
    extra = job.get("phase") if job["state"] == "DISPATCHING" else None
    if job.get("cancel_requested") and not job.get("finished_at"):
        extra = "cancelling"
    return f"{job['state']} ({extra})" if extra else str(job["state"])


_WAITS = {
    "WAITING_FOR_SLOT": "for a slot",
    "WAITING_FOR_HOST": "for a host",
    "NO_HOST_FITS": "no host fits",
    "WAITING_FOR_QUEUE": "for its queue",
    "WAITING_FOR_TURN": "for its turn",
    "WAITING_FOR_DEPENDENCY": "for other jobs",
    "RETRYING": "tried again",
    "HOST_UNREACHABLE": "for its host",
}


def state_and_why(job: dict[str, Any]) -> str:
    """`QUEUED (for a slot)`, `QUEUED (tried again in 12 s)`: with what it waits for, where that is known."""
    if job["state"] not in {"QUEUED", "RECOVERING"}:
        return state_words(job)
    due = (moment(job.get("not_before")) or 0.0) - time.time()
    why = "held" if job.get("held") else f"tried again in {span(due)}" if due > 0 else _WAITS.get(job["reason"])
    return f"{job['state']} ({why})" if why and not job.get("cancel_requested") else state_words(job)


def state_coloured(words: str) -> str:
    """For `click.echo`, which takes the colour away again when nobody looks."""
    colour = _STATE_COLOURS.get(words.split(" ", maxsplit=1)[0])
    return click.style(words, fg=colour) if colour and not os.environ.get("NO_COLOR") else words


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, state_column: str = "state") -> None:
    """A table on standard output: rich for a person, plain aligned text into a pipe."""
    lines = [[clean(cell) for cell in row] for row in rows]
    if not person_looks():
        plain_table(columns, lines)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for line in lines:
        cells = []
        for column, cell in zip(columns, line, strict=True):
            colour = _STATE_COLOURS.get(cell.split(" ")[0], "") if column == state_column else ""
            cells.append(Text(cell, style=colour))
        made.add_row(*cells)
    Console().print(made)


def plain_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Aligned columns two spaces apart; an empty cell is `-`, so that `awk` counts right."""
    shown = [list(columns), *[[cell or "-" for cell in line] for line in lines]]
    widths = [max(len(line[i]) for line in shown) for i in range(len(columns))]
    for line in shown:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def pairs(rows: Sequence[tuple[str, object]]) -> None:
    """`name  value` lines; empty values are left out."""
    shown = [(name, clean(value)) for name, value in rows if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        coloured = state_coloured(value) if name == "state" else value
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {coloured}")
