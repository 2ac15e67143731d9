"""How modules end: with a result, or with one sentence about what went wrong."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple, Type


def answer_with(
    module: Any, apply: Callable[[Any], Dict[str, Any]], refused: Tuple[Type[Exception], ...], **always: Any
) -> None:
    """Exits with what `apply(module)` returns, or fails: with the words of an error of `refused`, or for another error
    of the system with the path (the client's home when the error names none) and why.

    `always` is part of either answer. `module` is an AnsibleModule with an argument `home`.
    """
    result: Dict[str, Any] = {}
    message = None
    try:
        result = apply(module)
    except refused as error:
        message = str(error)
    except OSError as error:
        message = "%s: %s" % (error.filename or module.params["home"], error.strerror)
    if message is not None:
        module.fail_json(msg=message, **always)
    module.exit_json(**always, **result)
