"""Why a job waits, as a code and a sentence that is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monkey.scheduler.needs import HostView, Need, Waiting

FOR_SLOT = "WAITING_FOR_SLOT"
FOR_HOST = "WAITING_FOR_HOST"
FOR_TURN = "WAITING_FOR_TURN"
FOR_QUEUE = "WAITING_FOR_QUEUE"
NO_HOST_FITS = "NO_HOST_FITS"


def for_queue(need: Need, out: int) -> Waiting:
    """Its group has as many jobs out as it lets out at once."""
    jobs = "job" if need.max_parallel == 1 else "jobs"
    message = f"{out} of at most {need.max_parallel} {jobs} of queue {need.group} are out"
    return Waiting(need.juid, FOR_QUEUE, message)


def for_strict(need: Need, first: Waiting) -> Waiting:
    """The policy lets nothing pass the first job that waits."""
    message = f"policy fifo lets nothing pass job {first.juid} of provider {need.provider}, which {first.message}"
    return Waiting(need.juid, FOR_TURN, message)


def no_candidate(need: Need, hosts: Sequence[HostView]) -> Waiting:
    """No host could ever take it: the provider has none, not the one that was asked for, or none that is large enough.

    Args:
        need: what is asked for.
        hosts: all hosts of its provider.
    """
    if not hosts:
        return Waiting(need.juid, FOR_HOST, f"waits for a host: provider {need.provider} has none")
    mine = [h for h in hosts if need.instance in (None, h.name)]
    if not mine:
        message = f"waits for host {need.instance}, which provider {need.provider} does not have any more"
        return Waiting(need.juid, FOR_HOST, message)
    cpus = max(h.cpus or 0.0 for h in mine)
    gpus = max(h.gpus or 0 for h in mine)
    memory_mb = max(h.memory_mb or 0 for h in mine)
    short = []
    if need.cpus > cpus:
        short.append(f"{need.cpus:g} CPU, the largest has {cpus:g}")
    if need.gpus > gpus:
        short.append(f"{need.gpus} GPU, the largest has {gpus}")
    if (need.memory_mb or 0) > memory_mb:
        short.append(f"{need.memory_mb} MB, the largest has {memory_mb}")
    asked = "; ".join(short) or f"{need.asks()}, no host has all of that together"
    who = f"host {need.instance}" if need.instance else "no host"
    verb = "could never" if need.instance else "could ever"
    return Waiting(need.juid, NO_HOST_FITS, f"{who} of provider {need.provider} {verb} take it: it asks for {asked}")


def not_now(need: Need, candidates: Sequence[HostView], held: Mapping[tuple[str, str], Need]) -> Waiting:
    """Hosts could take it, but none now.

    Args:
        need: what is asked for.
        candidates: hosts that could ever take it, at least one.
        held: hosts that are kept for a job ahead, by (provider, name).
    """
    for host in candidates:
        ahead = held.get((host.provider, host.name))
        if ahead is not None and host.fits(need):
            message = f"waits behind job {ahead.juid} ({ahead.asks()}), which is ahead and can use the same hosts"
            return Waiting(need.juid, FOR_TURN, message)
    ready = [h for h in candidates if h.ready]
    where = f"host {need.instance} of provider {need.provider}" if need.instance else f"provider {need.provider}"
    if not ready:
        first = next((h for h in candidates if h.why_not), candidates[0])
        why = first.why_not or "not ready yet"
        if len(candidates) == 1:
            message = f"waits for host {first.name} of provider {need.provider}: {why}"
        else:
            message = f"waits for one of {len(candidates)} hosts of {where}, none is ready; host {first.name}: {why}"
        return Waiting(need.juid, FOR_HOST, message)
    launching = next((h for h in ready if need.shape in h.launching and h.has_room(need)), None)
    if launching:
        message = f"waits for the launch that is under way on host {launching.name}; it goes with the next one"
        return Waiting(need.juid, FOR_SLOT, message)
    running = sum(h.running for h in ready)
    holds = f"{running} running job{'s hold' if running != 1 else ' holds'} " if running else "nothing is free on "
    which = f"host {ready[0].name}" if len(ready) == 1 else f"the {len(ready)} hosts that could take it"
    message = f"waits for a free slot ({need.asks()}) on {where}: {holds}{which}"
    away = next((h for h in candidates if not h.ready), None)
    if away:
        message += f"; host {away.name} is not ready: {away.why_not or 'not ready yet'}"
    return Waiting(need.juid, FOR_SLOT, message)
