"""Running jobs from Python: `MonkeyCLI().run("python -u mnist.py --learning-rate 0.1")` returns a `Job` at once."""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from monkey.apiclient import Api, Json
from monkey.errors import MonkeyError, UsageProblem
from monkey.paths import Home

__all__ = ["Job", "MonkeyCLI", "MonkeyError", "UsageProblem"]


class Job:
    """A job that was handed in. Everything is asked of the core when it is read; nothing is cached.

    Every method raises UsageProblem when the job is not known any more, MonkeyError when the core cannot be reached.
    """

    def __init__(self, api: Api, job: Json) -> None:
        self._api = api
        self.juid: str = job["juid"]
        self.nickname: str = job["nickname"]

    def __repr__(self) -> str:
        return f"<Job {self.juid} ({self.nickname})>"

    def info(self) -> Json:
        """All that is recorded, as `monkey info job --json` prints it."""
        return dict(self._api.again(lambda: self._api.job(self.juid)))

    @property
    def state(self) -> str:
        """`QUEUED`, `RUNNING`, `SUCCEEDED`, …"""
        return str(self.info()["state"])

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; None while it has none."""
        code = self.info()["exit_code"]
        return None if code is None else int(code)

    def wait(self, timeout_s: float | None = None) -> str:
        """Waits until the job has ended, or for `timeout_s` seconds. Returns the state then."""
        from monkey.follow import wait_until_over

        return str(wait_until_over(self._api, self.juid, self._revive, timeout_s)["state"])

    @overload
    def logs(self, follow: Literal[False] = False) -> str: ...

    @overload
    def logs(self, follow: Literal[True]) -> Iterator[str]: ...

    def logs(self, follow: bool = False) -> str | Iterator[str]:
        """The output so far; with `follow` an iterator over its lines until the job has ended.

        Bytes that are not UTF-8 become U+FFFD.
        """
        if follow:
            return self._lines()
        return b"".join(self._api.log(self.juid)).decode("utf-8", "replace")

    def _lines(self) -> Iterator[str]:
        from monkey.follow import log_of

        rest = b""
        for data in log_of(self._api, self.juid, self._revive):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace") + "\n"
        if rest:
            yield rest.decode("utf-8", "replace")

    def cancel(self) -> None:
        """Ends the job's processes, soon; `wait()` returns when they are gone."""
        self._api.act(self.juid, "cancel")

    def pause(self) -> None:
        """Stops its processes where they are, soon; they keep memory and slot. A job that waits is held back."""
        self._api.act(self.juid, "pause")

    def resume(self) -> None:
        """Lets it go on."""
        self._api.act(self.juid, "resume")

    def reset(self) -> None:
        """Puts it back into the queue after its end: the same job, a new attempt, its retries counted anew."""
        self._api.act(self.juid, "reset")

    def rerun(self) -> Job:
        """Runs it again exactly as it was, as a new job: that job."""
        return Job(self._api, self._api.act(self.juid, "rerun"))

    def explain(self) -> list[str]:
        """Why it is where it is, in sentences, as `monkey explain` prints them."""
        told = self._api.again(lambda: self._api.explain(self.juid))
        return [str(sentence["text"]) for sentence in told["sentences"]]

    def output(self, dest: str | os.PathLike[str] | None = None) -> Path:
        """Fetches what it persisted so far, and its log, into `dest`/JUID (default `monkey-output`): that folder."""
        from monkey.fetch import DEFAULT_DEST, fetch

        return fetch(self._api, self.info(), Path(dest if dest is not None else DEFAULT_DEST)).folder

    def _revive(self) -> None:
        from monkey.corestart import ensure_core

        ensure_core(self._api.home)


class MonkeyCLI:
    """Hands in jobs from a folder of code, as `monkey run -d` does there.

    Args:
        folder: where the code and job.yml are (default: the working folder when `run` is called).
        home: the MONKEY_HOME (default: the variable, else ~/.monkey).
        flags: defaults for every `run`; see there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        **flags: Any,
    ) -> None:
        _known(flags)
        self._folder = None if folder is None else Path(folder)
        self._home = Home.find(home)
        self._flags = flags

    def run(self, command: str | Sequence[str] | None = None, **flags: Any) -> Job:
        """Hands in a job and returns as soon as it is recorded; a core is started when none runs.

        Args:
            command: a string is split as a shell would split it (no expansion), a list is taken as it is; without it
                `command` of job.yml counts.
            flags: `provider`, `instance`, `job_file`, `name`, `env` (a mapping), `time_limit`, `cpus`, `gpus`,
                `memory`, `priority`, `retries`, `retry_on`, `retry_delay`, `lease`, `depends_on`, `queue`,
                `max_parallel`, as the options of `monkey run`. Lists may be lists; `depends_on` takes jobs too.

        Raises:
            UsageProblem: something cannot be used; nothing was handed in.
            MonkeyError: the core could not be started or reached.
        """
        from monkey.corestart import open_api
        from monkey.upload import Flags, prepare, send

        _known(flags)
        chosen = {**self._flags, **flags}
        if chosen.get("depends_on") is not None:
            chosen["depends_on"] = _jobs(chosen["depends_on"])
        chosen["env"] = {**(self._flags.get("env") or {}), **(flags.get("env") or {})}
        prepared = prepare(self._home, self._folder, _words(command), Flags(**chosen))
        api = open_api(self._home, start=True)
        send(api, prepared)
        return Job(api, api.submit(prepared.submission, str(uuid.uuid4())))

    def job(self, ident: str) -> Job:
        """A job of earlier, by JUID or nickname."""
        from monkey.corestart import open_api

        api = open_api(self._home, start=True)
        return Job(api, api.job(ident))

    def jobs(self, *, state: str | None = None, provider: str | None = None, name: str | None = None) -> list[Job]:
        """Jobs, oldest first; `state` as in `monkey list jobs --status`."""
        from monkey.corestart import open_api

        api = open_api(self._home, start=True)
        return [Job(api, job) for job in api.jobs(state=state, provider=provider, name=name)]


def _known(flags: Mapping[str, Any]) -> None:
    from dataclasses import fields

    from monkey.names import did_you_mean
    from monkey.upload import Flags

    known = [field.name for field in fields(Flags)]
    for name in flags:
        if name not in known:
            hint = did_you_mean(name, known) or f"; expected one of {', '.join(known)}"
            raise UsageProblem(name, f"no such flag of a job{hint}")


def _jobs(given: Any) -> list[str]:
    """JUIDs of what a job depends on: a job, or a text as on the command line, or several of either."""
    several = [given] if isinstance(given, (str, Job)) else list(given)
    return [part for one in several for part in (one.juid if isinstance(one, Job) else str(one)).split(",") if part]


def _words(command: str | Sequence[str] | None) -> list[str]:
    if command is None:
        return []
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError as error:
            raise UsageProblem("command", f"cannot be split into words: {error}") from error
    words = list(command)
    for number, word in enumerate(words, 1):
        if not isinstance(word, str):
            raise UsageProblem("command", f"argument {number} is a {type(word).__name__}; expected a string")
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageProblem("command", f"argument {number} is not UTF-8; expected UTF-8 text") from error
    return words
