"""Errors that a person can do something about."""

from __future__ import annotations


class MonkeyError(Exception):
    """Base of the driver's own errors: its text is one line, fit for a person to read."""


class UsageProblem(MonkeyError, ValueError):
    """What the user gave cannot be used: one line, exit code 2 (API: 400 or 404), and nothing was changed.

    `field` is the thing at fault as the user wrote it (`run.env_type`, `--memory`, `job.yml:3:7`), or "" when no
    single thing is; `message` says what was found and what was expected.
    """

    def __init__(self, field: str, message: str) -> None:
        # A line break inside (an argument that was quoted back) must not make it two lines.
        self.field = " ".join(field.split())
        self.message = " ".join(message.split())
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class IllegalChange(MonkeyError, ValueError):
    """A change of state that the table in `monkey.states` does not list."""
