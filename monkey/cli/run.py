"""`monkey run`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from monkey.cli.base import command, home, note, open_api, print_json, utf8_arguments
from monkey.cli.ids import complete_providers
from monkey.errors import UsageProblem

if TYPE_CHECKING:
    from monkey.apiclient import Api
    from monkey.upload import Prepared


@command(short_help="Run a command, and stream its output.", context_settings={"allow_interspersed_args": False})
@click.option("-p", "--provider", metavar="NAME", shell_complete=complete_providers, help="Where to run it.")
@click.option("-i", "--instance", metavar="HOST", help="This host of the provider, no other.")
@click.option("-jf", "--job-file", metavar="FILE", help="The job file; job.yml of this folder when it is there.")
@click.option("-n", "--name", metavar="NAME", help="A name for the job: 1 to 64 of A-Z a-z 0-9 . _ -")
@click.option("--env", "env", metavar="K=V", multiple=True, help="A variable of its environment; may be repeated.")
@click.option("--time-limit", metavar="TIME", help="End it after this time: 90 (seconds), 30m, 1h30m, 2d.")
@click.option("--cpus", metavar="N", help="CPUs it needs.")
@click.option("--gpus", metavar="N", help="GPUs it needs; it sees these only.")
@click.option("--memory", metavar="SIZE", help="Memory it needs: 512M, 16G.")
@click.option("--priority", metavar="N", help="0 to 1000, higher goes first; without it 500.")
@click.option("--retries", metavar="N", help="Up to N further attempts when it fails, is preempted or lost.")
@click.option(
    "--retry-on", metavar="WORD,..", help="Only after these: exit codes, failed, setup, timed_out, preempted, lost."
)
@click.option("--retry-delay", metavar="TIME", help="Pause before the first retry, then doubled; without it 10 s.")
@click.option("--lease", metavar="TIME", help="Its host ends it when the main node has been away for so long.")
@click.option(
    "--depends-on",
    metavar="ID[,ID]",
    multiple=True,
    help="Start after the success of these jobs; afterany:ID, after its end; may be repeated.",
)
@click.option("--queue", metavar="NAME", help="Jobs of one queue share --max-parallel; without it those of its name.")
@click.option("--max-parallel", metavar="N", help="Start only while fewer than N jobs of its queue are out.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, where it would run and how; change nothing.")
@click.option("-d", "--detach", is_flag=True, help="Print the JUID and return as soon as the job is recorded.")
@click.option("-f", "--foreground", is_flag=True, help="Stream until the end (this is what happens without -d).")
@click.option("--json", "as_json", is_flag=True, help="With -d the job, with --dry-run the plan, as JSON.")
@click.argument("command_words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    provider: str | None,
    instance: str | None,
    job_file: str | None,
    name: str | None,
    env: tuple[str, ...],
    time_limit: str | None,
    cpus: str | None,
    gpus: str | None,
    memory: str | None,
    depends_on: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    foreground: bool,
    as_json: bool,
    command_words: tuple[str, ...],
    **of_the_scheduler: str | None,
) -> int:
    """Run COMMAND with the code of this folder, and stream its output until the end.

    Options stand before COMMAND; from its first word on everything belongs to COMMAND, byte for byte. It may come from
    `command` of job.yml instead. What job.yml says can be overridden by the options.

    The exit code is that of COMMAND (128 + N when signal N ended it, as after its time limit or a cancel); 1 when it
    never got one (setup failed, cancelled before it ran, lost), 2 when nothing was started, 130 after Ctrl-C: the job
    is then left running.

    \b
    Examples:
      monkey run python3 mnist.py --learning-rate 0.14
      monkey run -p lab --gpus 1 --time-limit 2h python3 mnist.py
      monkey run -d --name sweep-1 --env SEED=7 ./train.sh "two words"
      monkey run --retries 3 --retry-on 137,lost --priority 900 python3 mnist.py
      monkey run -d --depends-on kob,afterany:bab ./report.sh
      monkey run --dry-run python3 mnist.py
      monkey run -- -odd-program
    """
    if detach and foreground:
        raise UsageProblem("--detach", "contradicts --foreground; expected one of them")
    if as_json and not (detach or dry_run):
        raise UsageProblem("--json", "needs --detach or --dry-run: a streamed job prints its own output")
    from monkey.upload import Flags, prepare

    flags = Flags(
        provider=provider,
        instance=instance,
        job_file=job_file,
        name=name,
        env=_variables(env),
        time_limit=time_limit,
        cpus=cpus,
        gpus=gpus,
        memory=memory,
        depends_on=",".join(depends_on) if depends_on else None,
        **of_the_scheduler,
    )
    prepared = prepare(home(), None, utf8_arguments(command_words), flags)
    api = open_api()
    if dry_run:
        return _show_plan(api, prepared, as_json)
    job = _hand_in(api, prepared)
    if detach:
        if as_json:
            print_json(job)
        else:
            click.echo(job["juid"])
        return 0
    from monkey.cli.stream import stream

    return stream(api, job)


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for text in utf8_arguments(given):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageProblem("--env", f"{text!r} is not K=V")
        variables[key] = value
    return variables


def _hand_in(api: Api, prepared: Prepared) -> dict[str, Any]:
    """Sends what monkeyfs lacks, then the job; returns it, acknowledged."""
    import uuid

    from monkey.cli import show
    from monkey.cli.stream import BAR_BYTES
    from monkey.upload import missing, send

    try:
        lacking = missing(api, prepared)
        size_bytes = sum(lacking.values())
        if size_bytes > BAR_BYTES and show.person_looks(sys.stderr):
            _send_with_bar(api, prepared, size_bytes)
        else:
            send(api, prepared)
        note(f"sent {show.files_and_bytes(len(lacking), size_bytes)}" if lacking else "sent 0 B: nothing changed")
    except KeyboardInterrupt:
        raise click.Abort from None
    return api.submit(prepared.submission, str(uuid.uuid4()))


def _send_with_bar(api: Api, prepared: Prepared, size_bytes: int) -> None:
    from monkey.cli.stream import bar
    from monkey.upload import send

    with bar("sending", size_bytes) as progress:
        send(api, prepared, lambda count: progress.advance(progress.task_ids[0], count))


def _show_plan(api: Api, prepared: Prepared, as_json: bool) -> int:
    from monkey.cli import show
    from monkey.upload import missing

    plan = api.plan({**prepared.submission, "blobs": prepared.sizes})
    lacking = missing(api, prepared)
    upload = {"files": len(lacking), "bytes": sum(lacking.values())}
    words = prepared.submission["command"]
    if as_json:
        total = {"files": prepared.files, "bytes": prepared.size_bytes}
        print_json({**plan, "upload": upload, "total": total, "command": words})
        return 0
    of_all = show.files_and_bytes(prepared.files, prepared.size_bytes)
    show.pairs(
        [
            ("code and data", of_all),
            ("to main node", show.files_and_bytes(upload["files"], upload["bytes"])),
            ("to host", show.files_and_bytes(plan["send"]["files"], plan["send"]["bytes"])),
            ("provider", plan["provider"]),
            ("host", plan["host"] or "none is free now"),
            ("playbook", plan["playbook"]),
            ("command", show.command_line(words)),
            ("reason", plan.get("reason")),
        ]
    )
    return 0
