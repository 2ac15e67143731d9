"""Following a job: its output as it comes, its state as it changes, across restarts of the core."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator

from monkey.apiclient import Api, ConnectionLost, CoreNotRunning, Json
from monkey.corestart import died
from monkey.errors import MonkeyError
from monkey.states import TERMINAL

# How long a core that was stopped (and not killed) may stay away: a service is restarted within seconds.
_AWAY_S = 15.0
_WAIT_S = 30.0
_PAUSE_S = 0.2
# After a restart so many changes are asked for again, to find the last one that was seen.
_EVENTS_AGAIN = 2000


class CoreStopped(MonkeyError):
    """The core was stopped while a job was followed; the job itself goes on."""


def is_over(job: Json) -> bool:
    """Whether the job is in a final state."""
    return job["state"] in TERMINAL


def reconnect(api: Api, revive: Callable[[], object]) -> None:
    """Waits until the core answers again; one that died without a clean stop is started again.

    Raises:
        CoreStopped: it was stopped and nobody started it again.
    """
    until = time.monotonic() + _AWAY_S
    while True:
        try:
            api.status()
            return
        except (ConnectionLost, CoreNotRunning) as error:
            if died(api.home):
                revive()
                return
            if time.monotonic() > until:
                raise CoreStopped("the core was stopped; jobs go on, `monkey core start` follows them again") from error
        time.sleep(_PAUSE_S)


def log_of(api: Api, juid: str, revive: Callable[[], object], *, attempt: int | None = None) -> Iterator[bytes]:
    """The output of a job as it comes, until the job has ended; with `attempt` that attempt's only."""
    number = attempt or 1
    offset = 0
    while True:
        try:
            if attempt is None and offset == 0:
                number = max(number, int(api.job(juid)["attempt"] or 1))
            for data in api.log(juid, offset=offset, attempt=number, follow=True):
                offset += len(data)
                yield data
            job = api.job(juid)
        except (ConnectionLost, CoreNotRunning):
            reconnect(api, revive)
            continue
        if attempt is not None or (is_over(job) and int(job["attempt"] or 1) <= number):
            return
        if int(job["attempt"] or 1) > number:
            number, offset = number + 1, 0
        else:
            time.sleep(_PAUSE_S)


def events_of(
    api: Api, revive: Callable[[], object], *, job: str | None = None, limit: int | None = None
) -> Iterator[Json]:
    """Recorded changes as they come, each once, across restarts of the core; ends with the caller's patience.

    Args:
        api: the core.
        revive: starts a core that died.
        job: changes of this job only.
        limit: how many of those that were recorded already come first.
    """
    seen: dict[str, None] = {}
    old: set[str] = set()
    while True:
        try:
            if seen:
                # What came while nobody listened begins behind the last one seen; all before it are old.
                keys = [_key(event) for event in api.events(job=job, limit=_EVENTS_AGAIN)]
                last = max((n for n, key in enumerate(keys) if key in seen), default=-1)
                old = set(keys[: last + 1])
            for event in api.events(job=job, limit=_EVENTS_AGAIN if seen else limit, follow=True):
                key = _key(event)
                if key in seen or key in old:
                    continue
                seen[key] = None
                if len(seen) > _EVENTS_AGAIN:
                    del seen[next(iter(seen))]
                yield event
        except (ConnectionLost, CoreNotRunning):
            reconnect(api, revive)
        else:
            time.sleep(_PAUSE_S)  # a core that stops ends the answer properly


def _key(event: Json) -> str:
    return json.dumps(event, sort_keys=True)


class Watcher:
    """Tells of a job's changes (state, bytes sent) from a thread of its own, until it has ended or the `with` ends."""

    def __init__(self, api: Api, job: Json, tell: Callable[[Json], None]) -> None:
        self._api = api
        self._job = job
        self._tell = tell
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monkey-watch", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def finish(self, timeout_s: float = 5.0) -> None:
        """Waits until the last change has been told."""
        self._thread.join(timeout_s)

    def _watch(self) -> None:
        job = self._job
        while not self._stopped.is_set() and not is_over(job):
            try:
                newer = self._api.wait(job["juid"], job["revision"], _WAIT_S)
            except MonkeyError:
                # The log's reader, in the main thread, brings the core back or gives up.
                self._stopped.wait(_PAUSE_S)
                continue
            if not self._stopped.is_set():
                self._tell(newer)
            job = newer


def wait_until_over(
    api: Api, juid: str, revive: Callable[[], object], timeout_s: float | None = None, job: Json | None = None
) -> Json:
    """The job as soon as it has ended, or as it is after `timeout_s`."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            if job is None:
                job = api.job(juid)
            left = _WAIT_S if until is None else max(0.0, min(_WAIT_S, until - time.monotonic()))
            if is_over(job) or (until is not None and left == 0.0):
                return job
            job = api.wait(juid, job["revision"], left)
        except (ConnectionLost, CoreNotRunning):
            reconnect(api, revive)
