"""`monkey state`: on the files of a stopped core, and by the API of a running one."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from monkey.api.state import state_router
from monkey.cli.base import Group, run_line
from monkey.paths import Home, socket_address
from monkey.store import Store
from monkey.version import __version__

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs one `monkey state …`: (exit code, standard output, standard error)."""
    cli = Group("monkey", lazy={"state": "monkey.cli.state:state_group"})

    def run(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run_line(cli, ["state", *arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


def fill(home: Home, jobs: int = 3) -> None:
    """A record after a kill: all of it is in the journal but for the first job."""
    with Store.open(home.root) as store:
        for n in range(jobs):
            store.put("jobs", f"j{n}", {"juid": f"j{n}", "state": "QUEUED", "nickname": "kob"})
            if n == 0:
                store.compact()
        kept = {path: path.read_bytes() for path in (home.state, home.journal)}
    for path, content in kept.items():
        path.write_bytes(content)


def files(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(home.root.iterdir()) if path.name.startswith("state")}


@pytest.fixture
def running(home: Home) -> Iterator[Store]:
    """The routes of the record on core.sock, above a store that is open."""
    fill(home)
    with Store.open(home.root) as store:
        app = FastAPI()
        core: Any = SimpleNamespace(store=store)
        app.include_router(state_router(core), prefix="/v1/state")

        @app.get("/v1/status")
        async def status() -> dict[str, Any]:
            return {"pid": 1, "version": __version__, "uptime_s": 1.0, "home": str(home.root), "jobs": {}}

        with socket_address(home.socket) as address:
            server = uvicorn.Server(uvicorn.Config(app, uds=address, log_config=None, lifespan="off"))
            thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
            thread.start()
            while not server.started:
                time.sleep(0.01)
            yield store
            server.should_exit = True
            thread.join()


def test_check_tells_what_the_record_holds_and_changes_nothing(home: Home, state: Run) -> None:
    fill(home)
    with home.journal.open("ab") as file:
        file.write(b"0123abcd 99 6 [torn")
    before = files(home)
    code, out, err = state("check")
    assert (code, err) == (0, "")
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert shown["jobs"] == "3"
    assert shown["last"] == "change    3"
    assert "19 B" in shown["torn"]
    code, out, _ = state("check", "--json")
    found = json.loads(out)
    assert {name: found[name] for name in ("sound", "jobs", "documents", "seq", "torn_bytes")} == {
        "sound": True, "jobs": 3, "documents": 3, "seq": 3, "torn_bytes": 19
    }  # fmt: skip
    assert files(home) == before


def test_check_of_damage_is_one_line_and_exit_code_1(home: Home, state: Run) -> None:
    fill(home)
    home.journal.write_bytes(home.journal.read_bytes().replace(b"kob", b"koc", 1))
    before = files(home)
    code, out, err = state("check")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert f"{home.journal} is damaged at byte 0: " in err
    assert f"truncate -s 0 {home.journal}" in err
    code, out, _ = state("check", "--json")
    found = json.loads(out)
    assert (code, found["sound"], found["file"], found["offset"]) == (1, False, str(home.journal), 0)
    assert state("compact")[0] == 1
    assert state("export", str(home.root.parent / "x"))[0] == 1
    assert not (home.root.parent / "x").exists()
    assert files(home) == before


def test_compact_writes_the_journal_into_the_state_file(home: Home, state: Run) -> None:
    code, _, err = state("compact")
    assert (code, home.root.exists()) == (2, False)
    assert "nothing was ever recorded" in err
    fill(home)
    code, out, _ = state("compact", "--json")
    sizes = json.loads(out)
    assert code == 0
    assert sizes["before"]["journal_bytes"] > 0 == sizes["after"]["journal_bytes"] == home.journal.stat().st_size
    assert sizes["after"]["state_bytes"] == home.state.stat().st_size > sizes["before"]["state_bytes"]


def test_an_export_goes_to_a_file_and_back(home: Home, state: Run, tmp_path: Path) -> None:
    fill(home)
    before = files(home)
    file = tmp_path / "backup.jsonl"
    assert state("export", str(file)) == (0, "", "")
    assert state("export") == (0, file.read_text(), "")
    assert files(home) == before
    assert file.stat().st_mode & 0o777 == 0o600
    kept = file.read_bytes()
    code, _, err = state("export", str(file))
    assert (code, err.count("\n")) == (2, 1)
    assert "--force" in err
    assert file.read_bytes() == kept
    assert state("export", "--force", str(file))[0] == 0

    code, _, err = state("import", str(file))
    assert (code, err.count("\n")) == (2, 1)
    assert "--replace" in err
    assert files(home) == before
    code, out, _ = state("import", str(file), "--replace", "--json")
    found = json.loads(out)
    assert (code, found["jobs"], len(found["kept"])) == (0, 3, 2)
    assert [Path(path).read_bytes() for path in found["kept"]] == [before["state.json"], before["state.journal"]]
    assert json.loads(state("check", "--json")[1])["jobs"] == 3
    assert sorted(tmp_path.iterdir()) == [file, home.root]


def test_bad_input_is_one_line_and_exit_code_2(home: Home, state: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b'{"monkey_state":1}\n')
    for arguments in (
        ["import", str(tmp_path / "absent")],
        ["import", str(tmp_path)],
        ["import", str(cut)],
        ["import"],
        ["export", str(tmp_path)],
        ["export", "--force", str(tmp_path)],
        ["export", str(tmp_path / "no" / "folder")],
        ["chekc"],
    ):
        code, out, err = state(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
    assert sorted(tmp_path.iterdir()) == [cut]


def test_a_running_core_is_asked(home: Home, running: Store, state: Run, tmp_path: Path) -> None:
    running.put("meta", "k", {"v": 1})
    found = json.loads(state("check", "--json")[1])
    assert {name: found[name] for name in ("sound", "jobs", "documents", "seq", "full", "journal_records")} == {
        "sound": True, "jobs": 3, "documents": 4, "seq": 4, "full": False, "journal_records": 3
    }  # fmt: skip
    file = tmp_path / "backup.jsonl"
    assert state("export", str(file)) == (0, "", "")
    assert len(file.read_bytes().splitlines()) == 6
    code, _, err = state("import", str(file), "--replace")
    assert (code, err.count("\n")) == (2, 1)
    assert "in use" in err
    code, out, _ = state("compact")
    assert code == 0
    assert "state.journal" in out
    assert home.journal.stat().st_size == 0 < home.state.stat().st_size
    running.put("meta", "k", {"v": 2})
    home.state.write_bytes(home.state.read_bytes().replace(b"kob", b"koc", 1))
    code, _, err = state("check")
    assert code == 1
    assert str(home.state) in err


def test_an_import_is_refused_while_a_core_holds_its_lock(home: Home, state: Run, tmp_path: Path) -> None:
    import fcntl

    fill(home)
    file = tmp_path / "backup.jsonl"
    assert state("export", str(file))[0] == 0
    before = files(home)
    with home.lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, err = state("import", str(file), "--replace")
    assert (code, err.count("\n")) == (2, 1)
    assert "monkey core stop" in err
    assert files(home) == before
