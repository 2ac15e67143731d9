"""A store without a disk."""

from __future__ import annotations

from monkey.store.base import BaseStore
from monkey.store.changes import Encoded


class MemoryStore(BaseStore):
    """The interface of `Store`, forgotten at the end."""

    def _persist(self, changes: list[Encoded]) -> None:
        pass

    def _has_room(self) -> bool:
        return True

    def _after_commit(self) -> None:
        pass

    def _close(self) -> None:
        pass
