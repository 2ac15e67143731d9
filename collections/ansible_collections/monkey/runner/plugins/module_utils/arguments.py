"""Arguments that several modules share, as an AnsibleModule takes them; the doc fragments describe them."""

from __future__ import annotations

from typing import Any, Dict

# Doc fragment client_home.
HOME: Dict[str, Any] = {"type": "path", "default": "~/.monkey-client/default"}
# Doc fragment monkeyfs.
MONKEYFS: Dict[str, Any] = {"type": "path", "required": True}
# What the action plugin of a module asks of it.
REQUEST: Dict[str, Any] = {"type": "dict"}


def attempts_with(**more: Dict[str, Any]) -> Dict[str, Any]:
    """A list of attempts; `more` describes what there is of each beside its name."""
    who: Dict[str, Dict[str, Any]] = {
        "juid": {"type": "str", "required": True},
        "attempt": {"type": "int", "required": True},
    }
    return {"type": "list", "elements": "dict", "required": True, "options": {**who, **more}}


def collected() -> Dict[str, Any]:
    """The attempts that `collect` takes, the same in the task and on the host."""
    persist = {"name": {"type": "str", "required": True}, "path": {"type": "str", "required": True}}
    return attempts_with(persist={"type": "list", "elements": "dict", "default": [], "options": persist})
