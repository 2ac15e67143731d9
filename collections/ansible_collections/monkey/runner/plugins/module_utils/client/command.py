"""What is executed for an attempt: argument list and environment, made from the spec alone."""

from __future__ import annotations

import errno
import os
import re
import shutil
from typing import Any, Dict, List, Tuple

from .attempt import Attempt
from .files import ClientError, write_atomic
from .processes import TOKEN
from .workdir import OUTPUT

# Of the daemon's environment a job sees all but what belongs to the connection that happened to start the daemon.
_NOT_INHERITED = re.compile(r"^(ANSIBLE_.*|SSH_.*|MONKEY_.*|_|OLDPWD|PWD|SHLVL|LS_COLORS)$")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Where a container sees the work folder (docs/interfaces.md) and the attempt's own tmp folder.
_WORK = "/work"
_SETUP_MARK = ".monkey-setup-done"
# docker-run(1), podman-run(1): "the error is with the engine itself".
ENGINE_ERROR = 125


def container_name(attempt: Attempt) -> str:
    """The name by which an attempt's container is found again."""
    return f"monkey-{attempt.juid}-{attempt.number}"


def engine(spec: Dict[str, Any]) -> str:
    """The absolute path of the container engine. Raises ClientError when it is not there."""
    name: str = spec["environment"]["engine"]
    found = shutil.which(name)
    if not found:
        raise ClientError(f"{name} is not installed on this host: install it or choose another environment.")
    return found


def inherited() -> Dict[str, str]:
    """The environment that a job's own is laid over."""
    env = {name: value for name, value in os.environ.items() if not _NOT_INHERITED.match(name)}
    env.setdefault("PATH", _DEFAULT_PATH)
    return env


def _own(attempt: Attempt, spec: Dict[str, Any], start: Dict[str, Any], work: str) -> Dict[str, str]:
    """What Monkey sets, and what the user's ``env`` may not change."""
    output = spec["persist"][0]["path"] if spec["persist"] else OUTPUT
    own = {
        "MONKEY_JUID": attempt.juid,
        "MONKEY_ATTEMPT": str(attempt.number),
        "MONKEY_NAME": spec["name"],
        "MONKEY_NUM_CPUS": f"{spec['resources']['cpus']:g}",
        "MONKEY_OUTPUT": os.path.join(work, output),
        TOKEN: start["token"],
    }
    if start["gpus"]:
        # A container sees only its own GPUs, counted from 0.
        indexes = range(len(start["gpus"])) if work == _WORK else start["gpus"]
        own["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in indexes)
    return own


def environment(attempt: Attempt, spec: Dict[str, Any], start: Dict[str, Any]) -> Dict[str, str]:
    """The environment of the command (of the engine, for containers)."""
    work = attempt.path("work")
    env = inherited()
    kind = spec["environment"]["kind"]
    if kind in ("pip", "conda"):
        prefix = spec["environment"]["path"]
        env["PATH"] = f"{prefix}/bin:{env['PATH']}"
        env["VIRTUAL_ENV" if kind == "pip" else "CONDA_PREFIX"] = prefix
        env.pop("PYTHONHOME", None)
    # A log that is a file would otherwise come in blocks of 8 kB; the user's env may say otherwise.
    env["PYTHONUNBUFFERED"] = "1"
    if kind != "docker":
        env.update(spec["env"])
    env["PWD"] = work
    env.update(_own(attempt, spec, start, work))
    return env


def plan(attempt: Attempt, spec: Dict[str, Any], start: Dict[str, Any]) -> Tuple[List[str], Dict[str, str]]:
    """Argument list and environment of the command. Raises ClientError, OSError."""
    env = environment(attempt, spec, start)
    if spec["environment"]["kind"] != "docker":
        return list(spec["command"]), env
    return _container(attempt, spec, start, env)


def setup_mark(attempt: Attempt) -> str:
    """The file that a container makes once its setup lines are through."""
    return attempt.path(f"tmp/{_SETUP_MARK}")


def _container(
    attempt: Attempt, spec: Dict[str, Any], start: Dict[str, Any], env: Dict[str, str]
) -> Tuple[List[str], Dict[str, str]]:
    given = spec["environment"]
    program = engine(spec)
    inside = dict({"PYTHONUNBUFFERED": "1"}, **spec["env"])
    inside.update(_own(attempt, spec, start, _WORK))
    tmp = attempt.path("tmp")
    os.makedirs(tmp, 0o700, exist_ok=True)
    argv = [program, "run", "--rm", "--init", "--name", container_name(attempt), "-w", _WORK]
    mounts = [f"{attempt.path('work')}:{_WORK}", f"{tmp}:/monkey-tmp"]
    mounts += [f"{path}:{path}:ro" for path in sorted({_data(attempt, item["tree"]) for item in spec["data"]})]
    for mount in mounts:
        if ":" in attempt.home or "\n" in attempt.home:
            raise ClientError(f"client_home {attempt.home!r}: a path with ':' cannot be mounted into a container.")
        argv += ["-v", mount]
    # Values never stand in arguments. An env file is one line each; what has newlines goes through the engine's own
    # environment by name.
    lines = []
    for name, value in inside.items():
        if "\n" in value or "\r" in value or name.startswith("#"):
            argv += ["-e", name]
            env[name] = value
        else:
            lines.append(f"{name}={value}\n")
    env_file = os.path.join(tmp, "env")
    write_atomic(env_file, "".join(lines).encode("utf-8", "surrogateescape"))
    argv += ["--env-file", env_file]
    limits = spec["resources"]
    if limits["memory_mb"]:
        argv += ["--memory", f"{int(limits['memory_mb'])}m"]
    if os.path.basename(program) != "podman" and os.getuid():
        argv += ["--user", f"{os.getuid()}:{os.getgid()}"]
    if start["gpus"]:
        if os.path.basename(program) == "podman":
            for index in start["gpus"]:
                argv += ["--device", f"nvidia.com/gpu={index}"]
        else:
            argv += ["--gpus", '"device=' + ",".join(str(index) for index in start["gpus"]) + '"']
    argv += given["options"]
    command = list(spec["command"])
    if spec["setup"]:
        # In the same container, since what setup installs would be gone in another; the command stays an argument list.
        script = "\n".join([*spec["setup"], f': > "/monkey-tmp/{_SETUP_MARK}"', 'exec "$@"'])
        command = ["/bin/sh", "-e", "-c", script, "monkey", *command]
    return [*argv, given["image"], *command], env


def _data(attempt: Attempt, tree: str) -> str:
    return os.path.join(attempt.home, "data", tree)


def execute(argv: List[str], env: Dict[str, str], work: str) -> None:
    """Replace this process by the command, found as a shell would; returns never. Raises OSError."""
    raw = [argument.encode("utf-8", "surrogateescape") for argument in argv]
    raw_env = {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape") for name, value in env.items()
    }
    os.chdir(work)
    if b"/" in raw[0]:
        candidates = [raw[0]]
    else:
        path = raw_env.get(b"PATH", _DEFAULT_PATH.encode())
        candidates = [os.path.join(folder or b".", raw[0]) for folder in path.split(b":")]
    worst = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for candidate in candidates:
        try:
            os.execve(candidate, raw, raw_env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                # A script without a first line: a shell runs it itself.
                os.execve(b"/bin/sh", [b"/bin/sh", candidate, *raw[1:]], raw_env)
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = error
    raise worst


def exit_code_of(error_number: int) -> int:
    """The exit code of a shell for a command that cannot be started: 127 not found, 126 not executable."""
    return 127 if error_number in (errno.ENOENT, errno.ENOTDIR) else 126
