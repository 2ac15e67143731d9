"""Amounts of time and memory as people write them: for the driver's job.yml and for the collection's playbooks."""

from __future__ import annotations

import math
import re

_LONGEST_S = 1e9  # some thirty years: beyond that it is a slip
_LARGEST_MB = 1 << 40

_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.ASCII)
_PARTS = re.compile(rf"(?:{_PART.pattern}\s*)+", re.ASCII)
_SLURM = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_UNIT_MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}

TIME_EXPECTED = "expected a time such as 90m, 1h30m, 1-12:00:00 or 5400 (seconds)"
MEMORY_EXPECTED = "expected memory such as 8GB, 512MB or 2G"


def parse_duration_s(value: object) -> float:
    """Seconds of `90m`, `1h30m`, a number of seconds, or Slurm's `MM:SS`, `HH:MM:SS`, `D-HH[:MM[:SS]]`.

    A bare number is seconds (Slurm: minutes), as every other time of Monkey is. Raises ValueError for anything
    else, and for what is not above zero.
    """
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds <= _LONGEST_S:
        raise ValueError(TIME_EXPECTED)
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if _NUMBER.fullmatch(text):
        return float(text)
    if _PARTS.fullmatch(text):
        parts = _PART.findall(text)
        units = [unit for _number, unit in parts]
        # Largest first and each once: `30m1h` and `5m5m` are slips.
        if units != sorted(set(units), key=lambda unit: -_UNIT_S[unit]):
            return None
        return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    match = _SLURM.fullmatch(text)
    if match is None:
        return None
    days, *fields = match.groups()
    given = [int(field) for field in fields if field is not None]
    # Slurm: after a day the fields begin with hours, otherwise they end with seconds.
    hours, minutes, seconds = [*given, 0, 0][:3] if days is not None else [0, 0, *given][-3:]
    clock = (hours, minutes, seconds)
    first = 0 if days is not None else 3 - len(given)
    limits = (24, 60, 60)
    if any(clock[i] >= limits[i] for i in range(3) if i > first or (i == first and days is not None)):
        return None
    return int(days or 0) * 86400.0 + hours * 3600 + minutes * 60 + seconds


def parse_memory_mb(value: object) -> int:
    """Megabytes (of 1024 * 1024 bytes, as Slurm and Docker count) of `8GB`, `512MB`, `2G`, `1.5g`, `16GiB`.

    A bare number is megabytes; fractions are rounded up. Raises ValueError for anything else, and for nothing.
    """
    mb: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        mb = float(value)
    elif isinstance(value, str):
        match = _MEMORY.fullmatch(value.strip())
        # `8B` would be eight bytes: nobody means that.
        if match and (match[2] or value.strip()[-1] not in "bB"):
            mb = float(match[1]) * _UNIT_MB[match[2].upper()]
    if mb is None or not 0 < mb <= _LARGEST_MB:
        raise ValueError(MEMORY_EXPECTED)
    return math.ceil(mb)
