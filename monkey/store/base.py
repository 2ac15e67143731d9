"""The interface of every store, and the part that all of them share."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from monkey.store.changes import Change, Doc, Encoded, encode
from monkey.store.errors import StoreClosedError
from monkey.store.rows import Rows


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
            self._persist(encoded)
            with self._reading:
                self._rows.apply(encoded)
            self._after_commit()

    @abstractmethod
    def _after_commit(self) -> None:
        """Housekeeping that must not fail the commit."""

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
            texts = self._rows.texts(table)
        return [(key, json.loads(text)) for key, text in texts]

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
            return self._rows.size("jobs")

    def iter_jobs(self, *, newest_first: bool = False) -> Iterator[Doc]:
        """A copy of every job as it was at the call, oldest first; each is read only when it is asked for."""
        with self._reading:
            self._check_open()
            texts = self._rows.texts("jobs")
        if newest_first:
            texts.reverse()
        return (json.loads(text) for _, text in texts)

    def by_state(self, *states: str) -> list[str]:
        """JUIDs of the jobs in any of the states, oldest first within each state."""
        with self._reading:
            self._check_open()
            return [juid for state in states for juid in self._rows.keys_where("state", str(state))]

    def by_name(self, name: str) -> list[str]:
        """JUIDs of the jobs with this name, oldest first."""
        with self._reading:
            self._check_open()
            return self._rows.keys_where("name", name)

    def latest_by_nickname(self, nickname: str) -> str | None:
        """JUID of the newest job with this nickname, or None."""
        with self._reading:
            self._check_open()
            return self._rows.newest_where("nickname", nickname)

    def nickname_is_live(self, nickname: str) -> bool:
        """Whether a job that has not ended has this nickname."""
        with self._reading:
            self._check_open()
            return self._rows.nickname_is_live(nickname)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state; states without a job are left out."""
        with self._reading:
            self._check_open()
            return self._rows.counts("state")

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
