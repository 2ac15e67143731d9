"""What `monkey run` shows of a job until it has ended: its output on stdout, the rest on stderr."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from monkey.cli import show
from monkey.cli.base import EXIT_INTERRUPTED, home, note
from monkey.follow import Watcher, is_over, log_of, wait_until_over
from monkey.states import Reason, State

if TYPE_CHECKING:
    from rich.progress import Progress

    from monkey.apiclient import Api

# Below this a bar would only flicker.
BAR_BYTES = 1_000_000
# 128 + SIGPIPE, as a shell reports it.
_EXIT_PIPE = 141


class _Notes:
    """Lines about the job on stderr, each change once; never in the middle of a line of the job's output."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._said = ""
        self._lock = threading.Lock()
        self._name = f"{job['juid']} ({job['nickname']})"
        self.mid_line = False
        self._bar: Progress | None = None

    def job(self, job: dict[str, Any]) -> None:
        """Says where the job is, if that is news, and shows a bar while bytes are sent to the host."""
        # The record keeps the figure until the playbook ends; the bar goes with the phase.
        self._show_bar((job.get("progress") if job.get("phase") == "machine" else None) or {})
        if is_over(job):
            return
        where = "/".join(part for part in (job["provider"], job["host"]) if part)
        # A reason that only repeats the state is no help to who watches.
        why = f": {job['message']}" if job["state"] in _EXPLAINED and job["reason"] not in _PLAIN else ""
        text = show.clean(f"{self._name} {show.state_words(job)} on {where}{why}")
        with self._lock:
            if text == self._said:
                return
            self._said = text
        self.line(text)

    def _show_bar(self, progress: dict[str, int]) -> None:
        total = progress.get("total_bytes", 0)
        if self._bar is None:
            if total < BAR_BYTES or not show.person_looks(sys.stderr):
                return
            self._bar = bar("sending to the host", total)
            self._bar.start()
        if progress:
            self._bar.update(self._bar.task_ids[0], completed=progress["sent_bytes"], total=total)
        else:
            self.close()

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def line(self, text: str, *, dim: bool = True) -> None:
        """One line on stderr."""
        with self._lock:
            if self.mid_line and sys.stderr.isatty() and sys.stdout.isatty():
                text = "\n" + text
                self.mid_line = False
        if self._bar is not None:
            self._bar.console.print(text, style="dim" if dim else None, markup=False, highlight=False, soft_wrap=True)
        else:
            note(text, dim=dim)


_EXPLAINED = {State.QUEUED, State.PAUSED, State.RECOVERING}
_PLAIN = {Reason.SUBMITTED, Reason.RERUN}


def stream(api: Api, job: dict[str, Any]) -> int:
    """Follows a job to its end and returns the exit code for the shell; Ctrl-C detaches."""
    from monkey.corestart import ensure_core

    notes = _Notes(job)
    notes.job(job)
    out = sys.stdout.buffer
    sys.stdout.flush()

    def revive() -> None:
        notes.line("the connection to the core was lost; reconnecting")
        ensure_core(home())

    try:
        with Watcher(api, job, notes.job) as watcher:
            for data in log_of(api, job["juid"], revive):
                out.write(data)
                out.flush()
                notes.mid_line = not data.endswith(b"\n")
            ended = wait_until_over(api, job["juid"], revive)
            watcher.finish(1.0)
            notes.close()
    except KeyboardInterrupt:
        _detached(notes, job)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
        _detached(notes, job)
        return _EXIT_PIPE
    _say_end(notes, ended)
    return exit_code(ended)


def bar(what: str, total: int) -> Progress:
    """A bar of bytes on stderr, not yet started, with one task of `total` bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    made = Progress(*columns, console=Console(stderr=True), transient=True)
    made.add_task(what, total=total)
    return made


def _detached(notes: _Notes, job: dict[str, Any]) -> None:
    notes.close()
    note("")
    notes.line(f"{job['juid']} ({job['nickname']}) goes on without you. Come back or end it with", dim=False)
    notes.line(f"  monkey logs -f {job['juid']}\n  monkey kill job {job['juid']}", dim=False)


def _say_end(notes: _Notes, job: dict[str, Any]) -> None:
    parts = [f"{job['juid']} ({job['nickname']}) {show.state_coloured(job['state'])}"]
    took = show.took(job)
    if took:
        parts.append(f" after {took}")
    if job["state"] != State.SUCCEEDED and job["exit_code"] is not None:
        parts.append(f", exit code {job['exit_code']}")
    message = show.clean(job.get("message"))
    if job["state"] == State.SUCCEEDED:
        # The sentence of success says how to fetch the results, which not every job has.
        message = f"`monkey output {job['nickname']}` fetches its results" if job["persist"] else ""
    notes.line("".join(parts) + (f". {message}" if message else ""), dim=False)


def exit_code(job: dict[str, Any]) -> int:
    """The shell's exit code for an ended job: the command's own, 1 when it has none or did not end by itself."""
    if job["state"] == State.SUCCEEDED:
        return 0
    code = job["exit_code"]
    return code if isinstance(code, int) and 0 < code < 256 else 1
