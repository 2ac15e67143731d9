"""What the API asks about jobs: hand in, plan, change, cancel, pause, resume, reset, run again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs import trees

from monkey import submit
from monkey.api.models import JobChange, PlanBody, Submission
from monkey.core.ending import requeue
from monkey.core.live import HOLDING, host_key
from monkey.errors import UsageProblem
from monkey.events import NotConnected
from monkey.jobs import Job, now
from monkey.states import Reason, State

if TYPE_CHECKING:
    from monkey.core.daemon import Core

_LOOKED_AT_WITHIN_S = 20.0
_FAILED = (State.FAILED, State.FAILED_SETUP, State.TIMED_OUT, State.LOST)


class Requests:
    """Answers what is asked about jobs; raises UsageProblem, and then nothing is changed.

    Args:
        core: whose jobs they are.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._jobs = core.jobs

    def submit(self, submission: Submission, key: str | None) -> Job:
        """Record a job; when this returns it is never lost."""
        earlier = self._jobs.of_key(key)
        if earlier:
            return self._jobs.view(earlier)
        fields = self._checked(submission)
        return self._jobs.view(self._jobs.add(fields, key))

    def _checked(self, submission: Submission) -> Job:
        submit.provider_for(submission, self._core.book)
        fields = submit.fields_of(submission, self._core.fs, self._jobs)
        submit.check_fits(submit.need_of({**fields, "juid": ""}, "", 0.0), self._core.board.views())
        return fields

    async def plan(self, body: PlanBody) -> dict[str, Any]:
        """What would happen to a submission now; nothing is changed. Hosts that are new are looked at first."""
        core = self._core
        provider = submit.provider_for(body, core.book)
        core.look_at_hosts()
        until = time.monotonic() + _LOOKED_AT_WITHIN_S
        while core.is_checking(provider.name) and time.monotonic() < until:
            await asyncio.sleep(0.1)
        asked = {**body.model_dump(), "juid": "", "order": 0}
        views = core.board.views()
        submit.check_fits(submit.need_of(asked, "", 0.0), views)
        decision = core.dispatcher.foresee(asked, views)
        placement = decision.placements.get("")
        waiting = next(iter(decision.waiting.values()), None)
        live = core.board.get(provider.name, placement.host) if placement else None
        there: set[str] = set()
        for tree in live.trees if live else ():
            if core.fs.has_tree(tree):
                there.update(trees.blobs_of(core.fs.get_tree(tree)))
        lacking = [size for sha, size in body.blobs.items() if sha not in there]
        return {
            "provider": provider.name,
            "host": placement.host if placement else None,
            "playbook": f"monkey.runner.{provider.playbook}",
            "send": {"files": len(lacking), "bytes": sum(lacking)},
            "reason": placement.why if placement else (waiting.message if waiting else ""),
        }

    def rerun(self, juid: str) -> Job:
        """The same job again, from what the record and monkeyfs hold."""
        submission = submit.submission_of(self._jobs.get(juid))
        submit.provider_for(submission, self._core.book)
        fields = submit.fields_of(submission, self._core.fs, self._jobs)
        again = self._jobs.add({**fields, "rerun_of": juid}, None)
        self._jobs.change(juid, rerun_as=again["juid"])
        return self._jobs.view(again)

    def rerun_failed(self, provider: str | None, name: str | None) -> list[Job]:
        """Run again what failed and was not run again yet, oldest first."""
        if provider is not None:
            self._core.book.get(provider)
        wanted = [
            job["juid"]
            for job in self._jobs.in_states(*_FAILED)
            if not job.get("rerun_as") and provider in (None, job["provider"]) and name in (None, job["name"])
        ]
        return [self.rerun(juid) for juid in sorted(wanted, key=lambda juid: self._jobs.get(juid)["order"])]

    def reset(self, juid: str) -> Job:
        """Put a job that has ended back into the queue, with its retries as at the beginning."""
        job = self._jobs.get(juid)
        if not self._jobs.is_over(job):
            instead = "`monkey job cancel` ends it first" if job["state"] != State.QUEUED else "it is in the queue"
            raise UsageProblem("job", f"{juid} is {job['state']}; only a job that has ended can be reset ({instead})")
        self._core.book.get(job["provider"])
        fields: dict[str, Any] = {"cancel_requested": False, "held": False, "retries_used": 0}
        return self._jobs.view(requeue(self._jobs, juid, Reason.RESET, reset=True, **fields))

    def change(self, juid: str, body: JobChange) -> Job:
        """Change a job that waits."""
        job = self._jobs.get(juid)
        if job["state"] != State.QUEUED:
            raise UsageProblem("job", f"{juid} is {job['state']}; only a job that is queued can be changed")
        fields: dict[str, Any] = {}
        if body.priority is not None:
            fields["priority"] = body.priority
        if "max_parallel" in body.model_fields_set:
            fields.update(max_parallel=body.max_parallel, queue=job["queue"] or job["name"])
        if body.depends_on is not None:
            fields["depends_on"] = submit.dependencies(body.depends_on, self._jobs, juid)
        return self._jobs.view(self._jobs.change(juid, **fields))

    async def cancel(self, juid: str) -> Job:
        """Cancel in whatever state; of one that is over nothing changes."""
        core, job = self._core, self._jobs.get(juid)
        state = State(job["state"])
        if self._jobs.is_over(job) or state == State.CLEANUP:
            return self._jobs.view(job)
        host = core.board.of(job) if state in HOLDING else None
        # Waiting, or on its way to a host that never had a client of ours: nothing of it can be there.
        nowhere = state == State.DISPATCHING and not core.launcher.is_launching(juid) and not (host and host.installed)
        if state in {State.QUEUED, State.RECOVERING} or nowhere:
            cancelled: dict[str, Any] = {"phase": None, "cancel_requested": True, "not_before": None}
            return self._jobs.view(
                self._jobs.change(juid, State.CANCELLED, Reason.CANCELLED_BY_USER, None, **cancelled)
            )
        job = self._jobs.change(juid, cancel_requested=True)
        core.launcher.abandon(juid)
        core.orders.give("cancel", job)
        core.wake()
        return self._jobs.view(self._jobs.get(juid))

    async def pause(self, juid: str) -> Job:
        """Hold a job where it is: in the queue, on its way, or running. A host that does not answer hears it later."""
        job = self._jobs.get(juid)
        state = State(job["state"])
        if self._jobs.is_over(job) or state == State.CLEANUP:
            raise UsageProblem("job", f"{juid} is {state}; only a job that has not ended can be paused")
        if state in {State.QUEUED, State.RECOVERING}:
            return self._jobs.view(self._jobs.change(juid, None, Reason.PAUSED_BY_USER, held=True))
        job = self._jobs.change(juid, held=True)
        if state != State.PAUSED and await self._told(job, "pause"):
            job = await self._until(juid, State.PAUSED)
        return self._jobs.view(self._jobs.get(juid))

    async def resume(self, juid: str) -> Job:
        """Let a paused job go on."""
        job = self._jobs.get(juid)
        state = State(job["state"])
        if not job["held"] and state != State.PAUSED:
            raise UsageProblem("job", f"{juid} is {state}, not paused; only a paused job can be resumed")
        if state in {State.QUEUED, State.RECOVERING}:
            reason = Reason.SUBMITTED if state == State.QUEUED else Reason.RETRYING
            return self._jobs.view(self._jobs.change(juid, None, reason, held=False))
        job = self._jobs.change(juid, held=False)
        if await self._told(job, "resume") and state == State.PAUSED:
            job = await self._until(juid, State.RUNNING)
        return self._jobs.view(self._jobs.get(juid))

    async def _told(self, job: Job, op: str) -> bool:
        """Whether the host did it; when it does not answer, or has it not yet, it is told when it does."""
        try:
            await self._core.orders.ask(op, job)
        except NotConnected:
            host = self._core.board.by_key(host_key(job))
            why = (host.message if host else "") or "the host does not answer now"
            self._jobs.change(job["juid"], None, Reason.HOST_UNREACHABLE, f"{why}; it hears of the {op} when it does")
            return False
        except UsageProblem:
            # It is still on its way there.
            return False
        return True

    async def _until(self, juid: str, state: State) -> Job:
        job = self._jobs.get(juid)
        for _ in range(10):
            if job["state"] == state or self._jobs.is_over(job):
                break
            await self._jobs.wait(juid, job["revision"], 1.0)
            job = self._jobs.get(juid)
        return job

    def explain(self, juid: str) -> dict[str, Any]:
        """Why a job is where it is, in sentences."""
        from monkey.explain import explain

        job = self._jobs.get(juid)
        parents = []
        for item in job["depends_on"]:
            parent = self._jobs.known(item["job"]) or {"nickname": "?", "state": None}
            known = {"juid": item["job"], "nickname": parent["nickname"], "state": parent["state"]}
            parents.append({**known, "when": item["when"]})
        waiting = self._core.dispatcher.why(job) if job["state"] == State.QUEUED else None
        sentences = explain(job, waiting=waiting, dependencies=parents, now=now())
        shown = [{"at": one.at, "text": one.text} for one in sentences]
        return {"juid": juid, "state": job["state"], "sentences": shown}
