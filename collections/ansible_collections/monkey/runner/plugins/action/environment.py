"""Runs the module ``environment``, on a host without pip and uv with the pip that this machine's Python carries."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Where Debian keeps the wheels that it takes out of ensurepip.
_WHEEL_FOLDERS = (Path("/usr/share/python-wheels"),)


def find_pip_wheel() -> Path | None:
    """Return the pip wheel that this machine's Python carries for ensurepip, or None."""
    folders = list(_WHEEL_FOLDERS)
    spec = importlib.util.find_spec("ensurepip")
    if spec is not None and spec.origin:
        folders.insert(0, Path(spec.origin).parent / "_bundled")
    for folder in folders:
        wheels = sorted(folder.glob("pip-*-py3-none-any.whl"))
        if wheels:
            return wheels[-1]
    return None


def zip_installed_pip(folder: Path) -> Path | None:
    """Make a wheel in ``folder`` from the pip that is installed beside this Ansible; return it, or None without pip."""
    spec = importlib.util.find_spec("pip")
    if spec is None or not spec.origin:
        return None
    package = Path(spec.origin).parent
    site = package.parent
    infos = sorted(site.glob("pip-*.dist-info"))
    if not infos:
        return None
    version = infos[-1].name[len("pip-") : -len(".dist-info")]
    wheel = folder / f"pip-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in (package, infos[-1]):
            for path in sorted(root.rglob("*")):
                # What an installer wrote about this machine is not part of a wheel; RECORD has to be there, unread.
                unwanted = path.name in ("INSTALLER", "REQUESTED", "direct_url.json") or "__pycache__" in path.parts
                if path.is_file() and not unwanted:
                    archive.write(path, path.relative_to(site).as_posix())
    return wheel


class ActionModule(ActionBase):  # type: ignore[misc]
    """Action of ``monkey.runner.environment``."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module, and once more with a pip wheel when the host turns out to need one."""
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        result: dict[str, Any] = self._execute_module(module_args=args, task_vars=task_vars)
        if result.get("pip_missing") and not args.get("pip_wheel"):
            with tempfile.TemporaryDirectory(prefix="monkey-pip-") as folder:
                wheel = find_pip_wheel() or zip_installed_pip(Path(folder))
                if wheel is None:
                    raise AnsibleActionFail(f"{result['msg']}; the Python of the control machine has no pip to send")
                args["pip_wheel"] = self._send(wheel)
            result = self._execute_module(module_args=args, task_vars=task_vars)
        return result

    def _send(self, wheel: Path) -> str:
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        remote: str = self._connection._shell.join_path(self._connection._shell.tmpdir, os.path.basename(wheel))
        self._transfer_file(str(wheel), remote)
        self._fixup_perms2((self._connection._shell.tmpdir, remote))
        return remote
