"""Names: JUIDs, nicknames, the rule for names that users choose, and the nearest known word."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Iterable

from monkey.errors import UsageProblem

NAME_PATTERN = r"[A-Za-z0-9._-]{1,64}"
"""The design's rule for names (job, project, provider, host, data set, persisted folder)."""

_NAME = re.compile(NAME_PATTERN, re.ASCII)
_JUID = re.compile(r"(\d\d)-(\d\d)-(\d\d)-(\d{3}|[1-9]\d{3,})", re.ASCII)
_NICKNAME = re.compile(r"[a-z]{3}", re.ASCII)

_CONSONANTS = "bdfghjklmnprstvwz"
_VOWELS = "aeiou"
# Rude or hurtful in some language that many users read, or a word of the command line (job, log, run …).
_NOT_NICKNAMES = """
    anu bum bim bit but con dik dum die fag fap fat fis fuk fut gag gas gay god gun has hit hiv hoe hor hun jap
    jew jiz job kak kik kil kok kot kul kum kus kut lul log lus mof mol nag naz neg nob nud nig nip nul nan nil pap
    pis pik pip pim pot put pus pud rap rat raw run sad sod suk sik sin sol sub sus tit tos tot tut tup uzi vag war
    wog wop zob zut
"""


def _pronounceable() -> tuple[str, ...]:
    words = [a + v + b for a in _CONSONANTS for v in _VOWELS for b in _CONSONANTS]
    words += [v + c + w for v in _VOWELS for c in _CONSONANTS for w in _VOWELS]
    unwanted = frozenset(_NOT_NICKNAMES.split())
    return tuple(word for word in words if word not in unwanted)


NICKNAMES = _pronounceable()
"""Every nickname that is ever given."""


def _stride(size: int) -> int:
    """A step near the golden section of `size` without a common factor: neighbours in time look unlike each other."""
    step = int(size * 0.618)
    while any(step % d == 0 and size % d == 0 for d in range(2, step + 1)):
        step += 1
    return step


_STEP = _stride(len(NICKNAMES))


def check_name(value: object, field: str) -> str:
    """Return `value` when it is a name by the rule; raise UsageProblem naming `field` otherwise.

    `.` and `..` match the pattern but are refused: names become names of files and folders.
    """
    if not isinstance(value, str):
        raise UsageProblem(field, f"expected a name of 1 to 64 of A-Z a-z 0-9 . _ -, found {_shown(value)}")
    if not _NAME.fullmatch(value) or value in {".", ".."}:
        raise UsageProblem(field, f"{_shown(value)} is not a name; expected 1 to 64 of A-Z a-z 0-9 . _ -")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def juid_for(day: datetime.date, n: int) -> str:
    """The JUID of the `n`-th job (from 1) of `day`: `26-11-21-001`; at least three digits.

    Raises ValueError when `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"jobs of a day are counted from 1, not {n}")
    return f"{day:%y-%m-%d}-{n:03d}"


def is_juid(text: str) -> bool:
    """Whether `text` is written as a JUID of a real day."""
    match = _JUID.fullmatch(text)
    if not match or match[4] == "000":
        return False
    try:
        datetime.date(2000 + int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def juid_key(juid: str) -> tuple[str, int]:
    """Sort key of a JUID: as text, job 1000 of a day would come before job 999."""
    day, _, number = juid.rpartition("-")
    return day, int(number)


def is_nickname(text: str) -> bool:
    """Whether `text` has the shape of a nickname: three lower-case letters."""
    return _NICKNAME.fullmatch(text) is not None


def nickname_for(n: int, in_use: Callable[[str], bool] | None = None) -> str:
    """The nickname of the `n`-th job of a main node: always the same for the same `n` and the same `in_use`.

    `in_use(word)` says whether a live job has the word; such words are passed over. When every word is in use the
    first choice is given again: the newest job of a nickname is the one that commands mean.
    """
    size = len(NICKNAMES)
    first = NICKNAMES[n * _STEP % size]
    if in_use is None or not in_use(first):
        return first
    for i in range(1, size):
        word = NICKNAMES[(n + i) * _STEP % size]
        if not in_use(word):
            return word
    return first


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to `word` (case does not count), or None when none is near."""
    known = {candidate.casefold(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.casefold(), known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing: to be put behind a message about an unknown word."""
    nearest = suggest(word, candidates)
    return f"; did you mean {nearest}?" if nearest else ""
