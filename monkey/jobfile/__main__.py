"""`python -m monkey.jobfile`: write docs/job.schema.json (or the file named) anew from the model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from monkey.jobfile.schema import json_schema


def text() -> str:
    """The file's content."""
    return json.dumps(json_schema(), indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the schema to the file named, or to docs/job.schema.json below the current folder."""
    Path(arguments[0] if arguments else "docs/job.schema.json").write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
