"""What the wheel and an editable install are made of."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_editable_install_copies_nothing_that_would_hide_the_sources() -> None:
    # hatchling copies what force-include names into site-packages, in an editable install too: after the next
    # `git pull` the programs would still run the collection of the day of the install.
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "force-include" not in wheel
    assert wheel["sources"] == ["collections"]
    assert {path for path in wheel["only-include"] if not (ROOT / path).exists()} == set()
    assert {"monkey", "monkeycli.py", "collections/ansible_collections/monkey"} == set(wheel["only-include"])
