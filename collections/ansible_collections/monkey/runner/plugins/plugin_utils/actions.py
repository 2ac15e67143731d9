"""What the action plugins of this collection have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.monkey.runner.plugins.module_utils.monkeyfs.errors import MonkeyFSError


class CheckedAction(ActionBase):  # type: ignore[misc]
    """An action that checks its arguments and fails with one sentence."""

    _supports_check_mode = True
    _supports_async = False

    arguments: ClassVar[dict[str, Any]] = {}
    refusals: ClassVar[tuple[type[Exception], ...]] = (MonkeyFSError,)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check the arguments and act. Raises AnsibleActionFail for what is refused and for what the system refuses."""
        super().run(tmp, task_vars)
        self._vars: dict[str, Any] = task_vars or {}
        _unused, self._args = self.validate_argument_spec(argument_spec=self.arguments)
        try:
            return self.act()
        except self.refusals as error:
            raise AnsibleActionFail(str(error)) from error
        except OSError as error:
            place = error.filename or self._args.get("monkeyfs")
            raise AnsibleActionFail(f"{place}: {error.strerror}" if place else str(error)) from error

    def act(self) -> dict[str, Any]:
        """What the action does: its result. May raise `refusals` and OSError."""
        raise NotImplementedError


class HostAction(CheckedAction):
    """One half of an action; the other is the module of the same name on the host, which answers requests."""

    TRANSFERS_FILES = True

    module: ClassVar[str] = ""
    # The arguments that it gets with each request.
    passed: ClassVar[tuple[str, ...]] = ()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The module's answer to one request. Raises AnsibleActionFail with its message and all else it told."""
        args = {key: self._args[key] for key in self.passed if self._args.get(key)}
        reply: dict[str, Any] = self._execute_module(
            module_name=self.module, module_args={**args, "request": request}, task_vars=self._vars
        )
        if reply.get("failed"):
            shown = {key: value for key, value in reply.items() if key not in ("invocation", "failed", "msg")}
            raise AnsibleActionFail(reply.get("msg") or "the module failed on the host", result=shown)
        return reply

    def remote_folder(self) -> str:
        """This task's own temporary folder on the host, which Ansible removes after the task."""
        if self._connection._shell.tmpdir is None:
            self._make_tmp_path()
        folder: str = self._connection._shell.tmpdir
        return folder.rstrip("/")
