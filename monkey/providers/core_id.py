"""The id of a main node: what keeps two main nodes apart on a machine that both use."""

from __future__ import annotations

import re
import secrets

from monkey.errors import UsageProblem
from monkey.paths import Home
from monkey.providers.private_file import write_private


def core_id(home: Home) -> str:
    """The id in MONKEY_HOME/core_id, made at the first call.

    Raises:
        UsageProblem: when the file holds something else.
        OSError: when it cannot be read or made.
    """
    try:
        text = home.core_id.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return _make(home)
    except UnicodeDecodeError:
        text = ""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", text):
        raise UsageProblem("core_id", f"{home.core_id} does not hold an id; expected letters, digits and -")
    return text


def _make(home: Home) -> str:
    # Two at once both write a file of their own, but only one of them gets to be linked under the name.
    temporary = home.root / f".core_id.{secrets.token_hex(6)}"
    write_private(temporary, secrets.token_hex(6) + "\n")
    try:
        home.core_id.hardlink_to(temporary)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
    return core_id(home)
