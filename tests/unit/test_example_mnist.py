"""The example is a training that learns, can be interrupted, and goes on as if nothing had happened."""

import csv
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "mnist"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with what requirements.txt asks for: this one when it has it, else a virtual environment."""
    if importlib.util.find_spec("numpy"):
        return sys.executable
    folder = tmp_path_factory.mktemp("mnist-env")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    program = str(folder / "bin" / "python")
    subprocess.run([program, "-m", "pip", "install", "-q", "-r", str(EXAMPLE / "requirements.txt")], check=True)
    return program


@pytest.fixture
def train(python, tmp_path):
    """Runs mnist.py from another folder; results go to tmp_path/output or, with MONKEY_OUTPUT, elsewhere."""

    def run(*arguments, **env):
        return subprocess.run(
            [python, "-u", str(EXAMPLE / "mnist.py"), *arguments],
            cwd=tmp_path,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("MONKEY_")}, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def losses(folder: Path) -> list[dict[str, str]]:
    with (folder / "losses.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_it_learns_the_digits_in_seconds(train, tmp_path):
    started = time.monotonic()
    done = train("--learning-rate", "0.14", "--n-epochs", "15")
    took_s = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("epoch 1/15 loss ")
    assert lines[-2].startswith("epoch 15/15 loss ")
    word, value = lines[-1].split()
    assert word == "accuracy"
    assert float(value) > 0.93
    assert took_s < 10  # 0.2 s alone on the machine; room for a loaded one
    table = losses(tmp_path / "output")
    assert [row["epoch"] for row in table] == [str(n) for n in range(1, 16)]
    assert float(table[-1]["loss"]) < float(table[0]["loss"]) / 5
    assert zipfile.is_zipfile(tmp_path / "output" / "checkpoint.npz")


def test_a_second_start_goes_on_and_ends_with_the_very_same_numbers(train, tmp_path):
    train("--n-epochs", "6", MONKEY_OUTPUT=str(tmp_path / "whole"))
    first = train("--n-epochs", "3", MONKEY_OUTPUT=str(tmp_path / "parts"))
    second = train("--n-epochs", "6", MONKEY_OUTPUT=str(tmp_path / "parts"))
    assert first.stdout.splitlines()[0].startswith("epoch 1/3 ")
    assert second.stdout.splitlines()[0] == "going on from the checkpoint after epoch 3"
    assert second.stdout.splitlines()[1].startswith("epoch 4/6 ")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert not (tmp_path / "output").exists()


def test_a_finished_training_says_so_and_succeeds(train):
    train("--n-epochs", "2")
    again = train("--n-epochs", "2")
    assert again.returncode == 0
    assert again.stdout.splitlines()[0] == "nothing to do: the checkpoint has 2 epochs, 2 were asked for"
    assert again.stdout.splitlines()[-1].startswith("accuracy 0.")


def test_another_learning_rate_does_not_go_on_from_a_foreign_checkpoint(train, tmp_path):
    train("--n-epochs", "2", "--learning-rate", "0.1")
    other = train("--n-epochs", "1", "--learning-rate", "0.2")
    assert other.stdout.splitlines()[0] == "the checkpoint was made with other settings: starting from nothing"
    assert len(losses(tmp_path / "output")) == 1


def test_sigterm_leaves_a_whole_checkpoint_and_exits_143(python, train, tmp_path):
    process = subprocess.Popen(
        [python, "-u", str(EXAMPLE / "mnist.py"), "--n-epochs", "100000"],
        cwd=tmp_path,
        env={**os.environ, "MONKEY_OUTPUT": "here"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("epoch 1/100000 ")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read().splitlines()
        assert process.wait(timeout=30) == 143
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    done = len(losses(tmp_path / "here"))
    assert rest[-1] == f"asked to stop: the checkpoint after epoch {done} is written"
    after = train("--n-epochs", str(done + 1), MONKEY_OUTPUT="here")
    assert after.stdout.splitlines()[0] == f"going on from the checkpoint after epoch {done}"


@pytest.mark.parametrize(
    "arguments", [["--learning-rate", "0"], ["--learning-rate", "x"], ["--n-epochs", "0"], ["--unknown"]]
)
def test_bad_arguments_exit_2_and_write_nothing(train, tmp_path, arguments):
    done = train(*arguments)
    assert done.returncode == 2
    assert arguments[0] in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_job_file_names_what_is_there():
    job = yaml.safe_load((EXAMPLE / "job.yml").read_text())
    assert (EXAMPLE / job["run"]["env_file"]).is_file()
    assert all((EXAMPLE / item["path"]).is_dir() for item in job["data"])
    assert {item["path"] for item in job["data"]} <= set(job["code"]["ignore"])
    assert job["persist"] == ["output"]


def test_the_sweep_makes_every_job_before_it_waits_and_prints_a_table(tmp_path):
    """The SDK's other side is played by a module that records what the script asks of it."""
    shutil.copy(EXAMPLE / "param_sweep.py", tmp_path)
    (tmp_path / "monkeycli.py").write_text(
        "calls = []\n"
        "class Job:\n"
        "    state = 'SUCCEEDED'\n"
        "    def __init__(self, command): self.command = command\n"
        "    def wait(self): print('waited after', len(calls))\n"
        "    def logs(self): return 'epoch 1/1\\naccuracy 0.9' + self.command.split()[4][-1] + '\\n'\n"
        "class MonkeyCLI:\n"
        "    def run(self, command):\n"
        "        calls.append(command)\n"
        "        return Job(command)\n"
    )
    done = subprocess.run(
        [sys.executable, "param_sweep.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in done.splitlines() if "SUCCEEDED" in line]
    assert [row[0] for row in rows] == ["0.01", "0.02", "0.03", "0.05", "0.1", "0.12"]
    assert rows[0] == ["0.01", "15", "0.91", "SUCCEEDED"]
    assert {line for line in done.splitlines() if line.startswith("waited")} == {"waited after 6"}
