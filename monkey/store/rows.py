"""The tables in memory, with the indexes of the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from monkey.states import TERMINAL
from monkey.store.changes import Encoded, Facts
from monkey.store.ordered import Ordered, Row

_TERMINAL = frozenset(str(state) for state in TERMINAL)
_NOTHING = Ordered()


class Rows:
    """Documents as JSON text by table and key; jobs also by state, nickname and whether they are on a host.

    A change costs the same however many documents there are. Not safe for several threads: callers hold a lock.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Row] = {}
        self._tables: dict[str, dict[str, str]] = {}
        self._states: dict[str, Ordered] = {}
        self._nicknames: dict[str, Ordered] = {}
        self.on_host = Ordered()
        self.all_jobs = Ordered()
        self.last_order = 0

    def apply(self, changes: Iterable[Encoded]) -> None:
        """Make the changes; deleting what is not there changes nothing."""
        for change in changes:
            if change.table == "jobs":
                self._change_job(change.key, change.text, change.facts)
            elif change.text is None:
                self._tables.get(change.table, {}).pop(change.key, None)
            else:
                self._tables.setdefault(change.table, {})[change.key] = change.text

    def _change_job(self, key: str, text: str | None, facts: Facts | None) -> None:
        row = self._jobs.get(key)
        if text is None or facts is None:
            if row is not None:
                del self._jobs[key]
                self._unindex(row, None)
                self.all_jobs.remove(row)
            return
        if row is None:
            self.last_order += 1
            row = self._jobs[key] = Row(self.last_order, key, text, facts)
            self.all_jobs.add(row)
            self._index(row, None)
            return
        row.text = text
        if row.facts != facts:
            old = row.facts
            self._unindex(row, facts)
            row.facts = facts
            self._index(row, old)

    def _unindex(self, row: Row, new: Facts | None) -> None:
        """Take the row out of the indexes in which `new` has another place, or none."""
        old = row.facts
        if old.state is not None and (new is None or new.state != old.state):
            _take(self._states, old.state, row)
        if old.nickname is not None and (new is None or new.nickname != old.nickname):
            _take(self._nicknames, old.nickname, row)
        if old.on_host and (new is None or not new.on_host):
            self.on_host.remove(row)

    def _index(self, row: Row, old: Facts | None) -> None:
        """Put the row into the indexes in which `old` had another place, or none."""
        new = row.facts
        if new.state is not None and (old is None or old.state != new.state):
            _give(self._states, new.state, row)
        if new.nickname is not None and (old is None or old.nickname != new.nickname):
            _give(self._nicknames, new.nickname, row)
        if new.on_host and (old is None or not old.on_host):
            self.on_host.add(row)

    def get(self, table: str, key: str) -> str | None:
        """The document as JSON text, or None."""
        if table == "jobs":
            row = self._jobs.get(key)
            return row.text if row else None
        return self._tables.get(table, {}).get(key)

    def entries(self, table: str) -> Iterator[Encoded]:
        """Every document of a table in the order in which the keys came; only while nothing changes."""
        if table == "jobs":
            return (Encoded("jobs", row.key, row.text, row.facts) for row in self.all_jobs)
        return (Encoded(table, key, text, None) for key, text in self._tables.get(table, {}).items())

    def sizes(self) -> dict[str, int]:
        """Number of documents by table; empty ones are left out."""
        sizes = {"jobs": len(self._jobs), **{name: len(rows) for name, rows in self._tables.items()}}
        return {name: size for name, size in sizes.items() if size}

    def in_state(self, state: str) -> Ordered:
        """The jobs in a state; not to be changed."""
        return self._states.get(state, _NOTHING)

    def counts(self) -> dict[str, int]:
        """How many jobs there are by state."""
        return {state: len(rows) for state, rows in self._states.items()}

    def latest_of_nickname(self, nickname: str) -> str | None:
        """The key of the job with the nickname that came last."""
        found = self._nicknames.get(nickname, _NOTHING).before(self.last_order + 1, 1)
        return found[0].key if found else None

    def nickname_is_live(self, nickname: str) -> bool:
        """Whether a job that has not ended has the nickname."""
        return any(row.facts.state not in _TERMINAL for row in self._nicknames.get(nickname, _NOTHING))


def _give(index: dict[str, Ordered], value: str, row: Row) -> None:
    rows = index.get(value)
    if rows is None:
        rows = index[value] = Ordered()
    rows.add(row)


def _take(index: dict[str, Ordered], value: str, row: Row) -> None:
    rows = index[value]
    rows.remove(row)
    if not rows:
        del index[value]
