"""A mistyped word gets the nearest known one."""

from __future__ import annotations

import pytest
from ansible_collections.monkey.runner.plugins.filter.nearest import FilterModule


@pytest.mark.parametrize(
    ("mistyped", "meant"), [("dokcer", "docker"), ("CONDA", "conda"), ("cuda11", "cuda11.1"), ("pytroch", "pytorch")]
)
def test_it_is_what_was_probably_meant(mistyped: str, meant: str) -> None:
    known = ["conda", "docker", "nvidia-docker", "pytorch", "cuda10.2", "cuda11.1"]
    assert FilterModule().filters()["nearest"](mistyped, known) == meant
