"""Records (stores on disk) whose content is known from the number of changes made to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from monkey.store import Store

_KEYS = 20
Tables = dict[str, list[tuple[str, Any]]]


def _job(n: int) -> dict[str, Any]:
    state = ("QUEUED", "RUNNING", "SUCCEEDED")[n % 3]
    juid = f"26-11-21-{n % _KEYS:03}"
    return {"juid": juid, "state": state, "nickname": "kob", "name": "a", "n": n, "pad": "é" * (n % 9)}


def put_change(store: Store, n: int) -> None:
    """The n-th change: two keys at once."""
    with store.transaction() as record:
        record.put("jobs", _job(n)["juid"], _job(n))
        record.put("meta", "last", {"n": n})


def content_of(store: Store) -> Tables:
    """All that a store holds, in its order."""
    return {table: store.items(table) for table in ("jobs", "hosts", "meta", "idempotency")}


def after_changes(last: int) -> Tables:
    """What a store holds after changes 1 … ``last``."""
    newest = {_job(n)["juid"]: _job(n) for n in range(1, last + 1)}
    meta = [("last", {"n": last})] if last else []
    return {"jobs": list(newest.items()), "hosts": [], "meta": meta, "idempotency": []}


def content_found(folder: Path) -> Tables:
    """What an opener finds, after a kill: closing would write the files anew."""
    store = Store.open(folder)
    content = content_of(store)
    store._journal.close()
    return content


def make_record(folder: Path, compacted: int, changes: int) -> Path:
    """A store's folder as a kill would leave it: so many changes, of which state.json holds the first ``compacted``."""
    store = Store.open(folder)
    for n in range(1, changes + 1):
        put_change(store, n)
        if n == compacted:
            store.compact()
    store._journal.close()
    return folder
