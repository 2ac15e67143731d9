"""The same content has the same name, and other content another."""

from __future__ import annotations

import pytest
from ansible_collections.monkey.runner.plugins.module_utils.environments.keys import (
    environment_key,
    normalised_requirements,
    normalised_text,
)


@pytest.mark.parametrize(
    "same",
    ["numpy==1.0\nscipy\n", "# why\nnumpy==1.0   # pinned\n\n  scipy", "numpy==1.0\r\nscipy\r\n"],
)
def test_comments_and_white_space_do_not_count(same: str) -> None:
    assert normalised_requirements(same) == "numpy==1.0\nscipy"


@pytest.mark.parametrize(
    "other",
    [
        "scipy\nnumpy==1.0",  # order matters to options and to pip's resolver
        "numpy==1.0\\\nscipy",
        "numpy==1.0 # x \\\nscipy",  # pip joins first: one requirement and a comment
        "numpy==1.0#egg\nscipy",  # a # without white space before it is part of the word
    ],
)
def test_what_pip_reads_differently_is_different(other: str) -> None:
    assert normalised_requirements(other) != "numpy==1.0\nscipy"


def test_a_dockerfile_keeps_its_comments() -> None:
    assert normalised_text("# syntax=docker/dockerfile:1  \r\nFROM x\n\n") == "# syntax=docker/dockerfile:1\nFROM x"


def test_conditions_are_part_of_the_key_and_cannot_be_confused() -> None:
    keys = {
        environment_key("a", "3.11", "linux"),
        environment_key("a", "3.12", "linux"),
        environment_key("a", "3.11linux"),
        environment_key("a3.11", "linux"),
    }
    assert len(keys) == 4
    assert environment_key("a", "3.11", "linux") in keys
