"""From the files of an attempt to the journal: each event once, in order."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, List, Set

from .attempt import Attempt
from .files import ClientError
from .journal import Journal


def complain(text: str) -> None:
    """A line in daemon.log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def token_of(event: Dict[str, Any]) -> str:
    """The name under which an attempt remembers that an event of its own was journalled."""
    kind = str(event["type"])
    return f"pause{event.get('change')}" if kind in ("paused", "resumed") else kind


def events_of(attempt: Attempt) -> Dict[str, Dict[str, Any]]:
    """All events that the files of an attempt tell, by token."""
    events: List[Dict[str, Any]] = []
    spec = attempt.spec()
    if spec:
        events.append({"type": "accepted"})
    start = attempt.read("start.json")
    if start:
        events.append({"type": "setup"})
    running = attempt.read("command.json")
    if running:
        cpus = spec.get("resources", {}).get("cpus")
        events.append({"type": "started", "pid": running["pid"], "cpus": cpus, "gpus": start.get("gpus", [])})
    for change, phase in enumerate(attempt.read("pause.json").get("phases", []), start=1):
        events.append({"type": "paused" if change % 2 else "resumed", "change": change, "phase": phase})
    if attempt.has("log_quota"):
        events.append({"type": "log_quota"})
    if start and attempt.has("cancel"):
        events.append({"type": "cancelling"})
    ended = attempt.exit()
    if ended:
        events.append(dict(ended, type="ended"))
    return {token_of(event): event for event in events}


class Reporter:
    """Journals what is new. What a full disk hindered stays in ``unsaid`` and is tried again."""

    def __init__(self, home: str, journal: Journal) -> None:
        self._journal = journal
        self._told: Dict[str, Set[str]] = {}
        self.unsaid: Set[str] = set()
        # A daemon that was killed may have journalled an event and not yet noted so beside the attempt.
        for event in journal.after(0, sys.maxsize):
            attempt = Attempt(home, event["juid"], event["attempt"])
            self.told(attempt).add(token_of(event))

    def told(self, attempt: Attempt) -> Set[str]:
        """The events of an attempt that are in the journal, or were."""
        if attempt.key not in self._told:
            self._told[attempt.key] = attempt.told()
        return self._told[attempt.key]

    def forget(self, attempt: Attempt) -> None:
        """Nothing more comes of this attempt."""
        self._told.pop(attempt.key, None)
        self.unsaid.discard(attempt.key)

    def report(self, attempt: Attempt) -> bool:
        """Journal what is new of an attempt; whether something was."""
        told = self.told(attempt)
        events = events_of(attempt)
        fresh = [token for token in events if token not in told]
        if not fresh:
            self.unsaid.discard(attempt.key)
            return False
        common = {"ts": time.time(), "juid": attempt.juid, "attempt": attempt.number}
        try:
            self._journal.append([dict(common, **events[token]) for token in fresh])
        except OSError as error:
            complain(f"{attempt.key}: journal: {error}")
            self.unsaid.add(attempt.key)
            return False
        self.unsaid.discard(attempt.key)
        told.update(fresh)
        try:
            attempt.tell(fresh)
        except (ClientError, OSError) as error:
            complain(f"{attempt.key}: {error}")
        return True
