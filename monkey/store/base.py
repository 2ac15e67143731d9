"""The interface of every store, and the part that all of them share."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from monkey.store.changes import Change, Doc, Encoded, encode
from monkey.store.errors import StoreClosedError, StoreFullError
from monkey.store.ordered import Ordered, Row
from monkey.store.rows import Rows

# Rows looked at in one go while a lock is held: a fraction of a millisecond.
_STEP = 256


def _day_key(day: str) -> str:
    return f"day:{day}"


def _after(doc: Doc | None) -> int:
    return int(doc["last"]) + 1 if doc else 1


def number_change(day: str, number: int) -> Change:
    """The change that takes the number of a job: part of the commit that makes the job."""
    return Change.put("meta", _day_key(day), {"last": number})


class Transaction:
    """Changes that will be made together or not at all; `get` sees those that are made here already."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store
        self._changes: dict[tuple[str, str], Change] = {}

    def put(self, table: str, key: str, doc: Doc) -> None:
        """Stage a document. The store takes its copy when the transaction ends."""
        self._changes[table, key] = Change(table, key, doc)

    def delete(self, table: str, key: str) -> None:
        """Stage a removal."""
        self._changes[table, key] = Change(table, key, None)

    def get(self, table: str, key: str) -> Doc | None:
        """A copy of the document as it will be, or None."""
        staged = self._changes.get((table, key))
        if staged is None:
            return self._store.get(table, key)
        return None if staged.doc is None else json.loads(json.dumps(staged.doc))

    def next_number(self, day: str) -> int:
        """The number of the next job of `day` (`26-11-21`), from 1; taken when the transaction is done."""
        number = _after(self.get("meta", _day_key(day)))
        change = number_change(day, number)
        self._changes[change.table, change.key] = change
        return number

    @property
    def changes(self) -> list[Change]:
        """What is staged, each key once."""
        return list(self._changes.values())


class BaseStore(ABC):
    """Documents by table and key. Whatever it hands out is a copy; whatever returned is on disk (where there is one).

    Any thread may use it. Writers wait for each other; readers wait for no disk.
    """

    def __init__(self) -> None:
        self._rows = Rows()
        self._writing = threading.RLock()  # held while changes are made durable
        self._reading = threading.Lock()  # held while memory is read or changed
        self._closed = False
        self._seq = 0
        self._full = False

    @abstractmethod
    def _persist(self, changes: list[Encoded]) -> None:
        """Make the changes durable, or raise and leave everything as it was. Called by one thread at a time."""

    @abstractmethod
    def _close(self) -> None:
        """Release what the store holds. Called once."""

    def commit(self, changes: Iterable[Change]) -> None:
        """Make all changes or none, and return when they are durable.

        Raises StoreFullError (nothing changed; works again when there is room), StoreWriteError, StoreClosedError;
        ValueError or TypeError for what is no document.
        """
        encoded = encode(changes)
        with self._writing:
            self._check_open()
            if not encoded:
                return
            try:
                self._persist(encoded)
            except StoreFullError:
                self._full = True
                raise
            self._full = False
            self._seq += 1
            with self._reading:
                self._rows.apply(encoded)
            self._after_commit()

    @abstractmethod
    def _after_commit(self) -> None:
        """Housekeeping that must not fail the commit."""

    @property
    def is_full(self) -> bool:
        """Whether the last attempt to write failed for lack of room."""
        return self._full

    def probe_room(self) -> bool:
        """Whether changes can be written (again); changes nothing, and costs nothing while the store is not full.

        Raises StoreWriteError when the disk fails in another way.
        """
        with self._writing:
            self._check_open()
            self._full = self._full and not self._has_room()
            return not self._full

    @abstractmethod
    def _has_room(self) -> bool:
        """Whether what was refused for lack of room would be taken now."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """`with store.transaction() as t:` commits at the end, or does nothing when the block raises.

        No other thread writes meanwhile, so that what the block read still holds when it is committed.
        """
        with self._writing:
            self._check_open()
            transaction = Transaction(self)
            yield transaction
            self.commit(transaction.changes)

    def put(self, table: str, key: str, doc: Doc) -> None:
        """`commit` of one document."""
        self.commit([Change(table, key, doc)])

    def delete(self, table: str, key: str) -> None:
        """`commit` of one removal; removing what is not there is no error."""
        self.commit([Change(table, key, None)])

    def get(self, table: str, key: str) -> Doc | None:
        """A copy of the document, or None."""
        with self._reading:
            self._check_open()
            text = self._rows.get(table, key)
        return None if text is None else json.loads(text)

    def items(self, table: str) -> list[tuple[str, Doc]]:
        """Key and a copy of every document of a table, in the order in which the keys came."""
        with self._reading:
            self._check_open()
            entries = list(self._rows.entries(table))
        return [(entry.key, json.loads(entry.text)) for entry in entries if entry.text is not None]

    def entries(self) -> tuple[int, list[Encoded]]:
        """Number of the last change, and every document as it was then, as text: what an export holds."""
        with self._writing, self._reading:
            self._check_open()
            return self._seq, [entry for table in self._rows.sizes() for entry in self._rows.entries(table)]

    def summary(self) -> dict[str, Any]:
        """`jobs`, `documents`, `seq` (number of the last change), `full`, and sizes in bytes where there are files."""
        with self._reading:
            self._check_open()
            sizes = self._rows.sizes()
        return {"jobs": sizes.get("jobs", 0), "documents": sum(sizes.values()), "seq": self._seq, "full": self.is_full}

    def next_number(self, day: str) -> int:
        """The number that the next job of `day` (`26-11-21`) may have, from 1.

        It is taken by committing `number_change(day, number)` together with the job; with several writing threads
        use `transaction().next_number`.
        """
        return _after(self.get("meta", _day_key(day)))

    def count_jobs(self) -> int:
        """How many jobs there are."""
        with self._reading:
            self._check_open()
            return self._rows.sizes().get("jobs", 0)

    def iter_jobs(
        self,
        *,
        newest_first: bool = False,
        states: Iterable[str] | None = None,
        name: str | None = None,
        provider: str | None = None,
    ) -> Iterator[Doc]:
        """A copy of each job there was at the call, oldest first; each is read only when it is asked for.

        Jobs may come, change and go meanwhile: each is as it is when it is reached. With `states`, `name` or
        `provider` only those that match then; what does not match costs next to nothing.
        """
        wanted = None if states is None else {str(state) for state in states}

        def matches(row: Row) -> bool:
            facts = row.facts
            return (
                (wanted is None or facts.state in wanted)
                and (name is None or facts.name == name)
                and (provider is None or facts.provider == provider)
            )

        with self._reading:
            self._check_open()
            last = self._rows.last_order
        walk = self._walk(lambda: self._rows.all_jobs, last, matches, newest_first=newest_first)
        return (json.loads(row.text) for row in walk)

    def _walk(
        self,
        find: Callable[[], Ordered],
        last: int,
        matches: Callable[[Row], bool] | None = None,
        *,
        newest_first: bool = False,
    ) -> Iterator[Row]:
        """Rows of an index, in steps between which it may change; those that came after `last` are left out."""
        at = last + 1 if newest_first else 0
        count = 1
        while True:
            with self._reading:
                self._check_open()
                rows = find().before(at, count) if newest_first else find().after(at, count)
            for row in rows:
                if row.order <= last and (matches is None or matches(row)):
                    yield row
            if len(rows) < count or rows[-1].order >= last + newest_first:
                return
            at = rows[-1].order
            # Who takes one row pays for one.
            count = min(2 * count, _STEP)

    def by_state(self, *states: str) -> list[str]:
        """JUIDs of the jobs in any of the states, oldest first within each state."""
        with self._reading:
            self._check_open()
            return [row.key for state in states for row in self._rows.in_state(str(state))]

    def iter_by_state(self, *states: str) -> Iterator[str]:
        """As `by_state`, each found when it is asked for: who takes the first ten pays for ten.

        Jobs may change meanwhile; one that has left its state before it was reached is left out.
        """
        with self._reading:
            self._check_open()
            last = self._rows.last_order
        for state in states:
            word = str(state)
            for row in self._walk(lambda word=word: self._rows.in_state(word), last):  # type: ignore[misc]
                if row.facts.state == word:
                    yield row.key

    def first_by_state(self, state: str) -> str | None:
        """JUID of the oldest job in the state, or None."""
        return next(self.iter_by_state(state), None)

    def on_host(self) -> list[str]:
        """JUIDs of the jobs whose field `on_host` is true, oldest first."""
        with self._reading:
            self._check_open()
            return [row.key for row in self._rows.on_host]

    def latest_by_nickname(self, nickname: str) -> str | None:
        """JUID of the newest job with this nickname, or None."""
        with self._reading:
            self._check_open()
            return self._rows.latest_of_nickname(nickname)

    def nickname_is_live(self, nickname: str) -> bool:
        """Whether a job that has not ended has this nickname."""
        with self._reading:
            self._check_open()
            return self._rows.nickname_is_live(nickname)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state; states without a job are left out."""
        with self._reading:
            self._check_open()
            return self._rows.counts()

    def close(self) -> None:
        """Bring everything to rest and let the next opener in; closing twice is no error.

        Raises StoreFullError when `state.json` could not be written: nothing is lost, the journal holds it.
        """
        with self._writing:
            if self._closed:
                return
            with self._reading:
                self._closed = True
            self._close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
