"""How often, how soon and after what a job is tried: the words and ranges of job.yml, flags and API alike."""

from __future__ import annotations

from collections.abc import Sequence

from monkey.errors import UsageProblem
from monkey.names import check_name, did_you_mean

PRIORITY = range(1001)
"""0 to 1000; higher goes first."""
DEFAULT_PRIORITY = 500
RETRIES = range(101)
RETRY_WORDS = ("failed", "setup", "timed_out", "preempted", "lost")
"""Ends of an attempt that may be tried again, beside exit codes; `failed` is any exit code or signal."""
DEFAULT_RETRY_DELAY_S = 10.0
LONGEST_RETRY_DELAY_S = 600.0
SHORTEST_LEASE_S = 5.0
PHASES = ("queued", "machine", "installs", "setup", "cleanup")
"""What can have a limit of its own."""

# Slurm's words for when a job may start.
_WHEN = {"afterok": "success", "afterany": "end"}
_EXIT_CODES = range(1, 256)
_RETRY_EXPECTED = f"exit codes from 1 to 255 and {', '.join(RETRY_WORDS)}"
_DEPENDS_EXPECTED = "expected ID, afterok:ID or afterany:ID"


def check_range(value: int, allowed: range) -> int:
    """The number, when it is in the range. Raises ValueError naming the range."""
    if value not in allowed:
        raise ValueError(f"expected a whole number from {allowed[0]} to {allowed[-1]}, found {value}")
    return value


def check_retry_on(items: Sequence[object]) -> list[int | str]:
    """Exit codes and words after which a job is tried again, each once.

    Raises:
        ValueError: one of them is neither; the text names it and the nearest word.
    """
    found: list[int | str] = []
    for item in items:
        word = item.strip().lower().replace("-", "_") if isinstance(item, str) else item
        if isinstance(word, str) and word.isdecimal() and word.isascii():
            word = int(word) if len(word) < 9 else word
        if isinstance(word, bool) or not isinstance(word, (int, str)):
            raise ValueError(f"expected {_RETRY_EXPECTED}, found {item!r}")
        if isinstance(word, int) and word not in _EXIT_CODES:
            raise ValueError(f"expected an exit code from 1 to 255, found {word}")
        if isinstance(word, str) and word not in RETRY_WORDS:
            hint = did_you_mean(word, RETRY_WORDS) or f"; expected {_RETRY_EXPECTED}"
            raise ValueError(f"unknown word {_shown(item)}{hint}")
        if word not in found:
            found.append(word)
    if not found:
        raise ValueError(f"is empty; expected {_RETRY_EXPECTED}")
    return found


def check_seconds(value: float, least: float, most: float | None = None) -> float:
    """The number of seconds, when it is in its range. Raises ValueError naming the range."""
    if value < least or (most is not None and value > most):
        bounds = f"of at least {least:g} s" if most is None else f"from {least:g} to {most:g} s"
        raise ValueError(f"expected a time {bounds}, found {value:g} s")
    return value


def dependencies(texts: Sequence[str]) -> list[dict[str, str]]:
    """`[{"job", "when"}]` of `ID`, `afterok:ID[:ID]` (after success) and `afterany:ID` (after its end), each once.

    Raises:
        ValueError: one is not written like that.
    """
    found: list[dict[str, str]] = []
    for text in texts:
        word, colon, rest = text.strip().partition(":")
        if colon and word.lower() not in _WHEN:
            hint = did_you_mean(word, _WHEN) or f"; {_DEPENDS_EXPECTED}"
            raise ValueError(f"unknown word {_shown(word)} in {_shown(text)}{hint}")
        when = _WHEN[word.lower()] if colon else "success"
        for job in rest.split(":") if colon else [word]:
            try:
                check_name(job.strip(), "")
            except UsageProblem:
                raise ValueError(f"{_DEPENDS_EXPECTED}, found {_shown(text)}") from None
            one = {"job": job.strip(), "when": when}
            if one not in found:
                found.append(one)
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
