"""What is due when: one heap for all jobs, so that the loop sleeps until the next thing and looks at nothing else."""

from __future__ import annotations

import heapq


class Timers:
    """Due times by (job, what); setting one again replaces it. Times are any clock's seconds that never goes back."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []
        self._due: dict[tuple[str, str], float] = {}

    def set(self, juid: str, what: str, due: float | None) -> None:
        """Have `what` of a job come up at `due`; None: not at all."""
        if due is None:
            self._due.pop((juid, what), None)
        elif self._due.get((juid, what)) != due:
            self._due[juid, what] = due
            heapq.heappush(self._heap, (due, juid, what))

    def clear(self, juid: str, *whats: str) -> None:
        """Forget these of a job."""
        for what in whats:
            self._due.pop((juid, what), None)

    def next(self) -> float | None:
        """When the next one is due."""
        while self._heap and self._stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> list[tuple[str, str]]:
        """(job, what) of all that are due, oldest first; each comes up once."""
        found = []
        while (due := self.next()) is not None and due <= now:
            _, juid, what = heapq.heappop(self._heap)
            del self._due[juid, what]
            found.append((juid, what))
        return found

    def _stale(self, item: tuple[float, str, str]) -> bool:
        due, juid, what = item
        return self._due.get((juid, what)) != due
