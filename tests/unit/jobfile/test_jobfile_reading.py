"""Job files that are read, and what is said about those that are not."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from monkey.errors import UsageProblem
from monkey.jobfile import JobFile, json_schema, load
from monkey.jobfile.__main__ import text

FILES = Path(__file__).parent / "files"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    def _read(content: str | bytes) -> JobFile:
        Path("job.yml").write_bytes(content if isinstance(content, bytes) else content.encode())
        return load(Path("job.yml"))

    return _read


def test_the_originals_file_for_aws_is_read() -> None:
    job = load(FILES / "original_aws.yml")
    assert (job.name, job.project_name) == ("pendulum", "swing-up")
    assert (job.run.env_type, job.environment_file) == ("conda", "environment.yml")
    assert job.variables == {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "4"}
    assert job.install == ["conda", "cuda11.1", "nvidia-docker", "pytorch"]
    assert (job.code.path, job.code.ignore) == (".", ["data", "*.ckpt"])
    assert [(item.name, item.path) for item in job.persist] == [("output", "output"), ("videos", "logs/videos")]
    assert [(item.name, item.type, item.path, item.compression) for item in job.data] == [
        ("trajectories", "copy", "data", "gztar")
    ]
    provider = job.providers[0]
    assert (provider.machine_type, provider.disk_size, provider.spot, provider.spot_price) == (
        "p3.2xlarge", 100, True, 1.25,
    )  # fmt: skip


def test_the_originals_file_for_gcp_is_read_and_empty_is_absent() -> None:
    job = load(FILES / "original_gcp.yml")
    assert (job.install, job.persist, job.code.ignore, job.variables) == ([], [], [], {})
    assert job.name is None
    assert job.run.terminate is True
    assert len(job.setup_lines) == 1
    assert "./tools/install.sh" in job.setup_lines[0]
    assert (job.providers[0].disk_size_gb, job.providers[0].spot_price) == (50, "0.5")


def test_what_goes_beyond_the_original_is_read_and_text_stays_as_written() -> None:
    job = load(FILES / "everything.yml")
    assert job.command == ["python3", "train.py", "--rate", "0.10", "--title", "two words"]
    assert job.env == {"RATE": "0.10", "DEBUG": "true", "WHEN": "2026-11-21", "EMPTY": ""}
    assert (job.resources.cpus, job.resources.gpus, job.memory_mb) == (1.5, 2, 8192)
    assert job.time_limit_s == 36 * 3600
    assert (job.docker_image, job.environment_file) == ("python:3.11-slim", None)
    assert (job.idle_minutes, job.setup_lines) == (15, ["make -s"])
    assert (job.priority, job.retries, job.retry_on, job.retry_delay) == (900, 3, [1, 137, "lost"], 30)
    assert (job.lease, job.phase_limits_s) == (300, {"queued": 86400, "setup": 600})
    assert (job.queue, job.max_parallel) == ("sweep", 4)
    assert job.dependencies == [{"job": "kob", "when": "success"}, {"job": "26-11-21-001", "when": "end"}]


def test_an_empty_file_is_a_job_file(read) -> None:  # type: ignore[no-untyped-def]
    assert read("") == read("# nothing\n") == JobFile()


def test_a_byte_order_mark_and_anchors_are_fine(read) -> None:  # type: ignore[no-untyped-def]
    assert read(b"\xef\xbb\xbfname: a").name == "a"
    assert read("env: &e {A: 1}\nrun: {env: *e}").variables == {"A": "1"}
    assert read("run: {env: &e {A: 1, B: 2}}\nenv: {<<: *e, B: 3}").variables == {"A": "1", "B": "3"}


def test_a_command_list_is_taken_as_it_is(read) -> None:  # type: ignore[no-untyped-def]
    job = read('command: [python, "a b", "{{ x }}", $(y), "", 5, -1, true, 1e3, "\\n"]')
    assert job.command == ["python", "a b", "{{ x }}", "$(y)", "", "5", "-1", "true", "1e3", "\n"]


def test_persist_items_get_their_missing_half(read) -> None:  # type: ignore[no-untyped-def]
    job = read("persist: [./output/, 'a/b c', {name: ckpt}, {path: logs//run}]")
    assert [(item.name, item.path) for item in job.persist] == [
        ("output", "output"), ("a-b-c", "a/b c"), ("ckpt", "ckpt"), ("logs-run", "logs/run"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("run: {env_typ: pip}", "job.yml: run.env_typ: unknown key; did you mean env_type?"),
        ("comand: x", "job.yml: comand: unknown key; did you mean command?"),
        ("env_type: pip", "job.yml: env_type: unknown key; it belongs under run"),
        ("code: {name: x}", "job.yml: code.name: unknown key; it belongs at the top of the file"),
        ("data: [{name: a, path: b, compresion: tar}]",
         "job.yml: data[0].compresion: unknown key; did you mean compression?"),
        ("zzz:", "job.yml: zzz: unknown key; expected one of code, command, "),
        ("1: 2", "expected keys that are text, found 1"),
        ("name: 5", "job.yml: name: expected text, found 5; put it in quotes"),
        ("name: no", "job.yml: name: expected text, found false; put it in quotes"),
        ("name: !!timestamp 'no date'", "job.yml: name: 'no date' is not a name"),
        ("name: [a]", "job.yml: name: expected text, found a list"),
        ("name: a b", "job.yml: name: 'a b' is not a name; expected 1 to 64 of A-Z a-z 0-9 . _ -"),
        ("run: pip", "job.yml: run: expected keys and values, found 'pip'"),
        ("run: {env_type: pyp}", "job.yml: run.env_type: expected one of none, pip, conda, docker, found 'pyp'; did"),
        ("install: [cuda11]", "job.yml: install[0]: expected one of conda, docker, cuda10.2, cuda11.1, nvidia-docker"),
        ("persist: output", "job.yml: persist: expected a list, found 'output'"),
        ("persist: [5]", "job.yml: persist[0]: expected a path, or name and path, found 5"),
        ("persist: [a, {name: a, path: b}]", "job.yml: persist: two items are named 'a'"),
        ("data: [{name: a}]", "job.yml: data[0].path: is missing"),
        ("data: [{path: a}]", "job.yml: data[0].name: is missing"),
        ("data: [{name: a, path: /etc}]", "job.yml: data[0].path: expected a path inside the folder"),
        ("data: [{name: a, path: b, compression: zip}]", "data[0].compression: expected one of tar, gztar, found"),
        ("code: {path: a/../../x}", "job.yml: code.path: leaves the folder of the job file, found 'a/../../x'"),
        ("persist: [../x]", "job.yml: persist[0].path: leaves the folder"),
        ("resources: {cpus: -1}", "job.yml: resources.cpus: expected a number above 0, found -1"),
        ("resources: {cpus: true}", "job.yml: resources.cpus: expected a number, found true"),
        ("resources: {cpus: .nan}", "job.yml: resources.cpus: expected a finite number, found nan"),
        ("resources: {gpus: -1}", "job.yml: resources.gpus: expected a number of at least 0, found -1"),
        ("resources: {gpus: 1.5}", "job.yml: resources.gpus: expected a whole number, found 1.5"),
        ("resources: {memory: -2G}", "job.yml: resources.memory: expected memory such as 8GB, 512MB or 2G, found '"),
        ("time_limit: -5", "job.yml: time_limit: expected a time such as 90m"),
        ("retries: -1", "job.yml: retries: expected a whole number from 0 to 100, found -1"),
        ("retries: yes", "job.yml: retries: expected a whole number, found true"),
        ("priority: -5", "job.yml: priority: expected a whole number from 0 to 1000, found -5"),
        ("priority: 1001", "job.yml: priority: expected a whole number from 0 to 1000, found 1001"),
        ("max_parallel: 0", "job.yml: max_parallel: expected a number of at least 1, found 0"),
        ("retry_on: [lots]", "job.yml: retry_on: unknown word 'lots'; did you mean lost?"),
        ("retry_on: [timeout]", "job.yml: retry_on: unknown word 'timeout'; did you mean timed_out?"),
        ("retry_on: 0", "job.yml: retry_on: expected an exit code from 1 to 255, found 0"),
        ("retry_on: [1.5]", "job.yml: retry_on: expected exit codes from 1 to 255 and failed, setup, timed_out, pree"),
        ("retry_on: []", "job.yml: retry_on: is empty; expected exit codes from 1 to 255 and failed"),
        ("retry_on: {a: b}", "job.yml: retry_on: expected a list, found keys and values"),
        ("retry_delay: 1h", "job.yml: retry_delay: expected a time from 0 to 600 s, found 3600 s"),
        ("retry_delay: false", "job.yml: retry_delay: expected a time such as 90m"),
        ("lease: 2s", "job.yml: lease: expected a time of at least 5 s, found 2 s"),
        ("lease: soon", "job.yml: lease: expected a time such as 90m"),
        ("phase_limits: {setpu: 5m}", "job.yml: phase_limits.setpu: unknown key; did you mean setup?"),
        ("phase_limits: {setup: 0}", "job.yml: phase_limits.setup: expected a time such as 90m"),
        ("phase_limits: 5m", "job.yml: phase_limits: expected keys and values, found '5m'"),
        ("depends_on: [a b]", "job.yml: depends_on: expected ID, afterok:ID or afterany:ID, found 'a b'"),
        ("depends_on: ['afterok:']", "job.yml: depends_on: expected ID, afterok:ID or afterany:ID, found 'afterok:'"),
        ("depends_on: ['afterall:kob']", "job.yml: depends_on: unknown word 'afterall' in 'afterall:kob'; did you"),
        ("depends_on: [5]", "job.yml: depends_on[0]: expected text, found 5; put it in quotes"),
        ("name: me\ndepends_on: [afterany:me]", "job.yml: depends_on: 'me' is the job's own name"),
        ("queue: a b", "job.yml: queue: 'a b' is not a name"),
        ("idle_minutes: soon", "job.yml: idle_minutes: expected a number, found 'soon'"),
        ("env: [A]", "job.yml: env: expected a list of NAME: VALUE"),
        ("env: {A: }", "job.yml: env.A: expected text, found nothing"),
        ("env: {A: [1]}", "job.yml: env.A: expected text, found a list"),
        ("env: {A=B: x}", "job.yml: env: 'A=B' is not a name of a variable"),
        ("command: \"say 'hi\"", "job.yml: command: cannot be split as a shell would: no closing quotation"),
        ("command: []", "job.yml: command: expected a command"),
        ("command: [a, ~]", "job.yml: command[1]: expected text, found nothing"),
        ("providers: {name: aws}", "job.yml: providers: expected a list, found keys and values"),
        ("providers: [{name: a, disk_size: [1]}]", "providers[0].disk_size: expected a whole number or text, found a"),
        ("image: a\nrun: {image: b}", "job.yml: image and run.image differ; expected one of them"),
        ("- a", "job.yml: expected keys and values, found a list"),
        ("just words", "job.yml: expected keys and values, found a text"),
        ("setup: &a [*a]", "job.yml: setup[0]: expected text, found a list"),
    ],
)  # fmt: skip
def test_what_the_model_refuses_is_named(read, content: str, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageProblem) as caught:
        read(content)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_times_of_retries_and_leases_stay_as_written(read) -> None:  # type: ignore[no-untyped-def]
    job = read("retry_delay: 0\nlease: 1:30\nphase_limits: {machine: 1:00:00}\nretry_on: lost\ndepends_on: kob")
    # YAML 1.1 alone would read 1:30 as ninety minutes.
    assert (job.retry_delay, job.lease, job.phase_limits_s) == (0, 90, {"machine": 3600})
    assert (job.retry_on, job.dependencies) == (["lost"], [{"job": "kob", "when": "success"}])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("secrets: [token]", "secrets"),
        ("persist: [{path: a, ignore: [b]}]", "persist[0].ignore"),
        ("num_nodes: 2", "num_nodes"),
        ("data: [{name: a, path: b, type: mount}]", "data[0].type"),
    ],
)
def test_what_cannot_be_honoured_yet_is_not_ignored(read, content: str, place: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageProblem, match="not supported yet") as caught:
        read(content)
    assert caught.value.field == f"job.yml: {place}"


@pytest.mark.parametrize(
    ("content", "place", "says"),
    [
        ("name: a\nrun: {env_type: pip", "job.yml:2:20", "broken YAML: expected ',' or '}'"),
        ("a: b: c", "job.yml:1:5", "broken YAML: mapping values are not allowed here"),
        ("run:\n\tenv_type: pip", "job.yml:2:1", "broken YAML: found character '\\t'"),
        ("name: a\nrun:\n  env_type: none\n  env_type: pip", "job.yml:4:3", "'env_type' stands twice, first in line 3"),
        ("name: a\n'name': b", "job.yml:2:1", "'name' stands twice, first in line 1"),
        ("name: !!python/object:os.system x", "job.yml:1:7", "broken YAML: could not determine a constructor"),
        ("name: *nowhere", "job.yml:1:7", "broken YAML: found undefined alias"),
        ("{[a]: b}", "job.yml:1:2", "broken YAML: found unhashable key"),
        ("a: 1\n---\nb: 2", "job.yml:2:1", "broken YAML: but found another document"),
        ("é: \x01", "job.yml:1:4", "broken YAML: character 0x01 is not allowed"),
        (b"name: a\nrun: \xff", "job.yml:2:6", "expected UTF-8, found byte 0xff"),
        ("name: a\n".encode("utf-16"), "job.yml:1:1", "expected UTF-8"),
        ("priority: " + "9" * 5000, "job.yml", "broken YAML: Exceeds the limit"),
        ("[" * 5000, "job.yml", "broken YAML: nested too deeply"),
    ],
)
def test_broken_yaml_is_placed_by_line_and_column(read, content: str | bytes, place: str, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageProblem) as caught:
        read(content)
    assert caught.value.field == place
    assert says in caught.value.message
    assert "\n" not in str(caught.value)


def test_no_file_and_no_readable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem, match=r"^other\.yml: no such file"):
        load(Path("other.yml"))
    with pytest.raises(UsageProblem, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_the_schema_in_docs_is_current() -> None:
    assert (ROOT / "docs" / "job.schema.json").read_text() == text(), "run: python -m monkey.jobfile"


@pytest.mark.parametrize("name", ["original_aws", "original_gcp", "everything"])
def test_the_schema_takes_the_files_that_are_read(name: str) -> None:
    value = json.loads(json.dumps(yaml.safe_load((FILES / f"{name}.yml").read_text()), default=str))
    jsonschema.Draft202012Validator(json_schema()).validate(value)


@pytest.mark.parametrize(
    "value",
    [{"zzz": 1}, {"run": {"env_type": "pyp"}}, {"resources": {"cpus": -1}}, {"data": [{"name": "a"}]}, {"persist": "a"},
     {"name": "a b"}, {"command": 5}, {"env": {"A": []}}, {"priority": -5}, {"retry_on": ["lots"]}, {"retries": 101},
     {"phase_limits": {"setpu": 5}}, {"max_parallel": 0}],
)  # fmt: skip
def test_the_schema_refuses_what_is_refused(value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(value)
