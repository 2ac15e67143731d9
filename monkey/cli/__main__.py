"""`python -m monkey.cli`."""

from __future__ import annotations

from monkey.cli.main import main

main()
