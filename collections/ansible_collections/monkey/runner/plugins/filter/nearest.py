"""The known word that is nearest to one that was mistyped."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nearest
short_description: The known word that is nearest to one that was mistyped
version_added: "0.1.0"
description:
  - Gives the word of a list that looks most like the one given, for a message about a name that is unknown.
options:
  _input:
    description: The word that is unknown.
    type: str
    required: true
  words:
    description: The known words, at least one.
    type: list
    elements: str
    required: true
positional: words
author:
  - Monkey developers (@monkey)
"""

EXAMPLES = r"""
- name: Say what was probably meant
  ansible.builtin.debug:
    msg: "{{ 'dokcer' | monkey.runner.nearest(['conda', 'docker']) }}"
"""

RETURN = r"""
_value:
  description: The nearest of the known words.
  type: str
"""

import difflib
from typing import Any, Callable


def nearest(word: str, words: list[str]) -> str:
    """Return the one of ``words`` that is most like ``word``, by difflib's ratio; the first of those that are equal.

    Raises ValueError when ``words`` is empty.
    """
    return max(words, key=lambda known: difflib.SequenceMatcher(None, str(word).lower(), known.lower()).ratio())


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of this file by name."""
        return {"nearest": nearest}
