"""The queue: what waits, in lanes of jobs that ask for the same, so that a step looks at lanes and not at jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from monkey.scheduler.needs import Need

LaneKey = tuple[str, str | None, float, int, int | None, str, str | None, int | None]
"""What all jobs of a lane ask for: provider, instance, cpus, gpus, memory_mb, shape, group, max_parallel."""

# A lane is a list of sorted lists: to put one in or take one out moves at most that many, whatever the lane's length.
_CHUNK = 1000


def lane_of(need: Need) -> LaneKey:
    """The lane that a need belongs to: what it asks for, without its priority and age."""
    return (
        need.provider,
        need.instance,
        need.cpus,
        need.gpus,
        need.memory_mb,
        need.shape,
        need.group,
        need.max_parallel,
    )


Turn = tuple[int, float, int, str]
"""Sort key of the queue's order: priority, then age, then JUID (number 1000 of a day is longer than 999)."""

_Entry = tuple[int, float, int, str, Need]


def turn(need: Need) -> Turn:
    """A need's place in the queue's order."""
    return (-need.priority, need.queued_at, len(need.juid), need.juid)


class Lane:
    """Jobs that ask for the same, in the queue's order. A lane of the queue is never empty."""

    __slots__ = ("_chunks", "_lasts", "_size", "key")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self._chunks: list[list[_Entry]] = []
        # The last entry of each chunk, to find the chunk by.
        self._lasts: list[_Entry] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Need]:
        for chunk in self._chunks:
            for entry in chunk:
                yield entry[4]

    def add(self, need: Need) -> None:
        """Put a need in its place."""
        entry = (*turn(need), need)
        self._size += 1
        if not self._chunks:
            self._chunks.append([entry])
            self._lasts.append(entry)
            return
        at = min(bisect_left(self._lasts, entry), len(self._lasts) - 1)
        chunk = self._chunks[at]
        insort(chunk, entry)
        self._lasts[at] = chunk[-1]
        if len(chunk) > 2 * _CHUNK:
            self._chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            self._lasts.insert(at, chunk[_CHUNK - 1])

    def discard(self, need: Need) -> None:
        """Take a need out that is in it."""
        key = turn(need)
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        self._size -= 1
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]

    def ahead_of(self, need: Need) -> int:
        """How many of the lane come before a need, which may be of another lane."""
        key = turn(need)
        at = bisect_left(self._lasts, key)
        before = sum(len(chunk) for chunk in self._chunks[:at])
        return before + (bisect_left(self._chunks[at], key) if at < len(self._chunks) else 0)


class Queue:
    """What waits for a host.

    Args:
        needs: what is in it from the start.
    """

    def __init__(self, needs: Iterable[Need] = ()) -> None:
        self._needs: dict[str, Need] = {}
        self._lanes: dict[LaneKey, Lane] = {}
        for need in needs:
            self.add(need)

    def __len__(self) -> int:
        return len(self._needs)

    def __contains__(self, juid: object) -> bool:
        return juid in self._needs

    def __iter__(self) -> Iterator[Need]:
        """All needs, in no order that means anything."""
        return iter(self._needs.values())

    @property
    def lanes(self) -> Iterable[Lane]:
        """The lanes; each has at least one need."""
        return self._lanes.values()

    def add(self, need: Need) -> None:
        """Take a need in; one of the same job is replaced (its priority or limits changed)."""
        self.discard(need.juid)
        key = lane_of(need)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        lane.add(need)
        self._needs[need.juid] = need

    def discard(self, juid: str) -> None:
        """Take a job out; nothing happens when it is not in."""
        need = self._needs.pop(juid, None)
        if need is None:
            return
        key = lane_of(need)
        lane = self._lanes[key]
        lane.discard(need)
        if not len(lane):
            del self._lanes[key]

    def get(self, juid: str) -> Need | None:
        """What a queued job asks for, or None."""
        return self._needs.get(juid)

    def position(self, juid: str) -> int:
        """Place of a job among the queued ones of its provider: 1 is next. Takes a search in each lane.

        Raises:
            KeyError: it is not in the queue.
        """
        need = self._needs[juid]
        return 1 + sum(lane.ahead_of(need) for lane in self._lanes.values() if lane.key[0] == need.provider)
