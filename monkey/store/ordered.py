"""Jobs in the order in which they came, with changes and look-ups that do not grow with their number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter

from monkey.store.changes import Facts

# A change moves at most so many pointers; 100,000 jobs make 200 to 400 buckets.
_BUCKET = 512


class Row:
    """A job: its place in the order, its key, its document as JSON text, and what it is found by."""

    __slots__ = ("facts", "key", "order", "text")

    def __init__(self, order: int, key: str, text: str, facts: Facts) -> None:
        self.order = order
        self.key = key
        self.text = text
        self.facts = facts


_order = attrgetter("order")


def _first(bucket: list[Row]) -> int:
    return bucket[0].order


class Ordered:
    """A set of rows sorted by `order`. It may change while somebody walks it: each step looks where it is now."""

    __slots__ = ("_buckets", "_size")

    def __init__(self) -> None:
        self._buckets: list[list[Row]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def _bucket_of(self, order: int) -> int:
        return max(bisect_right(self._buckets, order, key=_first) - 1, 0)

    def add(self, row: Row) -> None:
        """Put a row that is not in it at its place."""
        self._size += 1
        if not self._buckets:
            self._buckets.append([row])
            return
        at = -1 if self._buckets[-1][-1].order < row.order else self._bucket_of(row.order)
        bucket = self._buckets[at]
        if at == -1:
            # What comes last, as nearly all do, fills a bucket and then begins one.
            if len(bucket) < _BUCKET:
                bucket.append(row)
            else:
                self._buckets.append([row])
            return
        bucket.insert(bisect_left(bucket, row.order, key=_order), row)
        if len(bucket) > _BUCKET:
            half = len(bucket) // 2
            self._buckets.insert(at + 1, bucket[half:])
            del bucket[half:]

    def remove(self, row: Row) -> None:
        """Take out a row that is in it."""
        at = self._bucket_of(row.order)
        bucket = self._buckets[at]
        del bucket[bisect_left(bucket, row.order, key=_order)]
        if not bucket:
            del self._buckets[at]
        self._size -= 1

    def after(self, order: int, count: int) -> list[Row]:
        """At most `count` rows whose order is above `order`, in order."""
        found: list[Row] = []
        for at in range(self._bucket_of(order), len(self._buckets)):
            bucket = self._buckets[at]
            start = bisect_right(bucket, order, key=_order)
            found += bucket[start : start + count - len(found)]
            if len(found) >= count:
                break
        return found

    def before(self, order: int, count: int) -> list[Row]:
        """At most `count` rows whose order is below `order`, the last first."""
        found: list[Row] = []
        for at in range(self._bucket_of(order), -1, -1):
            bucket = self._buckets[at] if self._buckets else []
            end = bisect_left(bucket, order, key=_order)
            found += bucket[max(end - count + len(found), 0) : end][::-1]
            if len(found) >= count:
                break
        return found

    def __iter__(self) -> Iterator[Row]:
        """All rows in order; only while nothing changes."""
        for bucket in self._buckets:
            yield from bucket
