"""`from monkeycli import MonkeyCLI`: Monkey from Python. See `monkey.sdk`."""

from __future__ import annotations

from monkey.sdk import Job, MonkeyCLI, MonkeyError, UsageProblem

__all__ = ["Job", "MonkeyCLI", "MonkeyError", "UsageProblem"]
