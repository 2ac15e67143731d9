"""What can go wrong while an environment is made."""

from __future__ import annotations


class EnvironmentBuildError(Exception):
    """An environment could not be made.

    ``str()`` is one sentence that names what failed; ``log_tail`` the last lines of the tool that failed, as it
    printed them, or an empty string when no tool ran.
    """

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class PipMissingError(EnvironmentBuildError):
    """The interpreter can make a virtual environment but has no pip to put into it (Debian without python3-venv)."""
