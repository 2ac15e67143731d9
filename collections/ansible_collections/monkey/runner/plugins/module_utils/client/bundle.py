"""The client as one file: a zip that Python runs, the same bytes from the same sources wherever it is built."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Tuple

# Imported by name, so that AnsiballZ carries them to the host with any module that imports this one.
from ..monkeyfs import blobs as _blobs
from ..monkeyfs import entries as _entries
from ..monkeyfs import errors as _errors
from ..monkeyfs import folders as _folders
from ..monkeyfs import packs as _packs
from ..monkeyfs import scanning as _scanning
from ..monkeyfs import trees as _trees
from ..monkeyfs import writing as _writing
from . import attempt as _attempt
from . import command as _command
from . import control as _control
from . import daemon as _daemon
from . import files as _files
from . import journal as _journal
from . import keeper as _keeper
from . import keepers as _keepers
from . import leases as _leases
from . import machine as _machine
from . import main as _main
from . import operations as _operations
from . import pausing as _pausing
from . import processes as _processes
from . import reporting as _reporting
from . import server as _server
from . import slots as _slots
from . import spawning as _spawning
from . import spec as _spec
from . import stream as _stream
from . import timer as _timer
from . import watching as _watching
from . import workdir as _workdir

_PARTS = {
    "client": (
        *(_attempt, _command, _control, _daemon, _files, _journal, _keeper, _keepers, _leases, _machine, _main),
        *(_operations, _pausing, _processes, _reporting, _server, _slots, _spawning, _spec, _stream, _timer),
        *(_watching, _workdir),
    ),
    "monkeyfs": (_blobs, _entries, _errors, _folders, _packs, _scanning, _trees, _writing),
}
_PACKAGE = "monkey_runner"
_MAIN = b"import sys\n\nfrom monkey_runner.client.main import main\n\nsys.exit(main())\n"
# The oldest time that a zip can hold: the bytes do not depend on when or where it was made.
_TIME = (1980, 1, 1, 0, 0, 0)


def build() -> Tuple[bytes, str]:
    """The program and its sha256."""
    content = {"__main__.py": _MAIN, f"{_PACKAGE}/__init__.py": b""}
    for part, modules in _PARTS.items():
        content[f"{_PACKAGE}/{part}/__init__.py"] = b""
        for module in modules:
            name = module.__name__.rpartition(".")[2]
            loader = getattr(module.__spec__, "loader", None)
            source = loader.get_data(module.__file__)  # type: ignore[union-attr]
            content[f"{_PACKAGE}/{part}/{name}.py"] = source
    out = io.BytesIO()
    # Stored, not deflated: the bytes of deflate differ between versions of zlib.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(content):
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            archive.writestr(entry, content[path])
    data = out.getvalue()
    return data, hashlib.sha256(data).hexdigest()
