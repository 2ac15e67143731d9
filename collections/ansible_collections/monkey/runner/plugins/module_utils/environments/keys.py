"""Names of environments: the same content on the same machine gives the same key, so that it is built once."""

from __future__ import annotations

import hashlib
import json
import re

# pip: a comment starts at the beginning of a line or after white space (pip/_internal/req/req_file.py, COMMENT_RE).
_COMMENT = re.compile(r"(^|\s+)#.*$")
_KEY_LENGTH = 32  # hexadecimal digits of the sha256: 128 bits, and short enough for the paths in #! lines


def normalised_requirements(content: str) -> str:
    """Return the text of a requirements file without what pip ignores: comments, empty lines, outer white space.

    The order of the lines is kept. A continued line is left alone, since pip joins lines before it drops comments.
    """
    lines = []
    for line in content.splitlines():
        kept = line.rstrip() if line.rstrip().endswith("\\") else _COMMENT.sub("", line).strip()
        if kept:
            lines.append(kept)
    return "\n".join(lines)


def normalised_text(content: str) -> str:
    """Return the text with line ends unified and white space at ends of lines and at the end of the file removed."""
    return "\n".join(line.rstrip() for line in content.splitlines()).rstrip("\n")


def environment_key(content: str, *parts: str) -> str:
    """Return 32 hexadecimal digits that name the environment made from ``content`` under the conditions ``parts``."""
    document = json.dumps([content, *parts], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(document.encode("ascii")).hexdigest()[:_KEY_LENGTH]
