"""What monkeyfs refuses, and the check of a sha256 name that every part of it shares."""

from __future__ import annotations

import re

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class MonkeyFSError(ValueError):
    """Something that monkeyfs refuses: one sentence that names the path or the blob."""


def check_sha(sha: object) -> str:
    """`sha` when it is 64 lower-case hex digits, else MonkeyFSError: names become paths, so nothing else may pass."""
    if not isinstance(sha, str) or not _SHA256.match(sha):
        raise MonkeyFSError("not a sha256 in lower-case hex: %.80r" % (sha,))
    return sha
