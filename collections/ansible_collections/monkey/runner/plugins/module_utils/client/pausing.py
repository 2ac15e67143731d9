"""What an attempt's ``pause.json`` tells: whether it is paused, how often that changed, and for how long.

The marker ``pause`` says what is wanted. The daemon notes it for an attempt that waits, the keeper for one that runs.
"""

from __future__ import annotations

from typing import List

from .attempt import Attempt
from .files import boot_seconds, write_json


class Pauses:
    """The pauses of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        found = attempt.read("pause.json")
        self.paused = bool(found.get("paused"))
        self._phases: List[str] = found.get("phases", [])
        self._since: float = found.get("since", 0.0)
        self._total_s: float = found.get("total_s", 0.0)

    def wanted(self) -> bool:
        """Whether it shall be paused."""
        return self._attempt.has("pause")

    def change(self, started: float) -> None:
        """Note that it is paused now and was not, or the other way. ``started``: see ``seconds``. Raises OSError."""
        now = boot_seconds()
        if self.paused:
            self._total_s = self.seconds(started)
        else:
            self._since = now
        self.paused = not self.paused
        # One for each change: what its command did when it was paused or resumed.
        self._phases = [*self._phases, self._attempt.phase()]
        record = {"paused": self.paused, "phases": self._phases, "since": self._since, "total_s": self._total_s}
        write_json(self._attempt.path("pause.json"), record)

    def seconds(self, started: float) -> float:
        """Seconds that the command was paused, which started at ``started`` (CLOCK_BOOTTIME, inf: not yet)."""
        running = boot_seconds() - max(self._since, started) if self.paused else 0.0
        return self._total_s + max(0.0, running)
