"""Durations and sizes as people write them. One place for job.yml's driver and the collection's playbooks."""

from __future__ import annotations

import re
from typing import Any

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNIT_MB = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
DURATION_EXPECTED = "expected seconds, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS"
MEMORY_EXPECTED = "expected a size such as 512MB or 8GB"


class UnitError(ValueError):
    """A duration or size that cannot be read; the text says what was expected."""


def duration_s(value: Any) -> float:
    """Seconds of ``5400``, ``"90m"``, ``"1h30m"``, or Slurm's ``HH:MM:SS``, ``MM:SS`` and ``D-HH:MM:SS``.

    Slurm's bare number (minutes there) is seconds here, as in every field of ours (sbatch(1), --time).

    Raises:
        UnitError: anything else, and what is not above zero.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise UnitError("found %r; %s" % (value, DURATION_EXPECTED))
    seconds = _seconds(value.strip().lower()) if isinstance(value, str) else float(value)
    if seconds is None or seconds != seconds or seconds in (float("inf"), float("-inf")):
        raise UnitError("found %r; %s" % (value, DURATION_EXPECTED))
    if seconds <= 0:
        raise UnitError("found %r; expected more than zero seconds" % (value,))
    return seconds


def _seconds(text: str) -> float | None:
    if re.match(r"^-?[0-9]+(\.[0-9]+)?$", text):
        return float(text)
    if re.match(r"^([0-9]+(\.[0-9]+)?[smhdw])+$", text):
        return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(r"([0-9.]+)([smhdw])", text))
    clock = re.match(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$", text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return None


def memory_mb(value: Any) -> int:
    """Megabytes (of 1024 kilobytes, as Slurm counts them) of ``2048``, ``"512MB"``, ``"8GB"``, ``"2G"``, ``"1.5GiB"``.

    Raises:
        UnitError: anything else, and what is not above zero.
    """
    match = re.match(r"^(-?[0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?$", str(value).strip().lower())
    if isinstance(value, bool) or not match:
        raise UnitError("found %r; %s" % (value, MEMORY_EXPECTED))
    size = float(match.group(1)) * _UNIT_MB[match.group(2)]
    if size <= 0:
        raise UnitError("found %r; expected more than zero" % (value,))
    return max(1, int(size))
