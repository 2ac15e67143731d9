"""The program of the fault tests' jobs: it counts its own executions. Standard library; also runs on test hosts.

    python3 -IS witness.py FOLDER ACTION…      (or `python3 -IS -c TEXT FOLDER ACTION…`, see `Witness.command`)

It makes ``FOLDER/JUID.n.run`` with O_EXCL. When that is there already this is a second execution of one attempt: it
leaves ``JUID.n.twice.PID`` and exits 99. Otherwise it does its actions in order and makes ``JUID.n.end``:

    sleep S   wait FILE   say TEXT   exit N   beat S (for S seconds adds the time of day to JUID.n.beat every 0.1 s)
    stubborn (ignores SIGTERM from now on)
"""

import os
import sys

TWICE = 99


def main(arguments):
    """Run as the job. Returns the exit code."""
    import signal
    import time

    folder, actions = arguments[0], iter(arguments[1:])
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, os.environ["MONKEY_JUID"] + "." + os.environ["MONKEY_ATTEMPT"])
    try:
        _make(name + ".run", f"{os.getpid()} {time.time():.3f}\n")
    except FileExistsError:
        _make(f"{name}.twice.{os.getpid()}", f"{time.time():.3f}\n")
        return TWICE
    code = 0
    for action in actions:
        if action == "sleep":
            time.sleep(float(next(actions)))
        elif action == "wait":
            awaited = next(actions)
            while not os.path.exists(awaited):
                time.sleep(0.05)
        elif action == "say":
            sys.stdout.write(next(actions) + "\n")
            sys.stdout.flush()
        elif action == "beat":
            until = time.monotonic() + float(next(actions))
            while time.monotonic() < until:
                with open(name + ".beat", "a") as file:
                    file.write(f"{time.time():.3f}\n")
                time.sleep(0.1)
        elif action == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif action == "exit":
            code = int(next(actions))
        else:
            sys.stderr.write(f"no action {action!r}\n")
            return 2
    _make(name + ".end", f"{time.time():.3f}\n")
    return code


def _make(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)


class Tally:
    """What the names in a witness folder say.

    Attributes:
        begun: attempts (``JUID.n``) that were executed.
        ended: those that came to their end by themselves.
        twice: those that were executed more than once.
    """

    def __init__(self, names):
        names = list(names)
        self.begun = {name[:-4] for name in names if name.endswith(".run")}
        self.ended = {name[:-4] for name in names if name.endswith(".end")}
        self.twice = {name.split(".twice.")[0] for name in names if ".twice." in name}

    def attempts_of(self, juid):
        """Numbers of the executed attempts of a job, in order."""
        return sorted(int(name.rsplit(".", 1)[1]) for name in self.begun if name.rsplit(".", 1)[0] == juid)


class Witness:
    """The witness folder of a test, where jobs run on this machine; ``folder`` may also name one on a host."""

    def __init__(self, folder):
        self.folder = str(folder)

    def command(self, *actions):
        """A job's command for this machine."""
        return ["python3", "-IS", os.path.abspath(__file__), self.folder, *map(str, actions)]

    def carried(self, *actions):
        """A job's command that brings the program along: for hosts, without any code."""
        with open(__file__) as source:
            return ["python3", "-IS", "-c", source.read(), self.folder, *map(str, actions)]

    def tally(self):
        """Counted on this machine."""
        try:
            return Tally(os.listdir(self.folder))
        except FileNotFoundError:
            return Tally([])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
