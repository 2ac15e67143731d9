"""What can go wrong with the record."""

from __future__ import annotations

from pathlib import Path

from monkey.errors import MonkeyError


class StoreError(MonkeyError):
    """Base of the store's errors."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreFullError(StoreError):
    """The disk (or a quota, or a limit of file size) has no room: the change was refused, nothing has changed."""


class StoreWriteError(StoreError):
    """The disk failed in another way. After a failure that could not be undone every further change is refused."""


class StoreClosedError(StoreError):
    """The store was closed."""


class StoreCorruptError(StoreError):
    """A file of the store is damaged: `path`, and `offset` in bytes where the damage begins."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        self.path = path
        self.offset = offset
        super().__init__(f"{path} is damaged at byte {offset}: {what}")
