"""The launcher's handle to a running program."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence

from trainyard.instance.sandbox import cgroups, status, supervisor
from trainyard.instance.sandbox.contract import Isolation, ProgramExit, SandboxLost
from trainyard.instance.sandbox.supervisor_process import STATUS_EOF, ForkedSupervisor, SupervisorProcess

_END_TIMEOUT_S = 30.0


class LaunchedProgram:
    """Implements `contract.Sandboxed` on top of a supervisor process."""

    def __init__(
        self,
        supervisor_process: SupervisorProcess,
        pidfd: int,
        *,
        name: str,
        pid: int,
        isolation: Isolation,
        folders: Sequence[str],
        not_enforced: Sequence[str],
    ) -> None:
        self._supervisor = supervisor_process
        self._pidfd = pidfd
        self._name = name
        self._pid = pid
        self._isolation = isolation
        self._folders = list(folders)
        self._not_enforced = tuple(not_enforced)
        self._code: int | None = None
        self._ended: ProgramExit | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def pidfd(self) -> int:
        return self._pidfd

    @property
    def not_enforced(self) -> Sequence[str]:
        return self._not_enforced

    @property
    def is_warm(self) -> bool:
        return isinstance(self._supervisor, ForkedSupervisor)

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            # A stopped program would not see the signal otherwise.
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    def kill(self) -> None:
        """Ask the supervisor to kill the tree, and kill init directly too, in case the supervisor hangs."""
        self._supervisor.send(supervisor.KILL)
        if self._isolation is Isolation.NAMESPACES:
            self._kill_namespace()
        if self.wait(_END_TIMEOUT_S) is None:
            raise SandboxLost(f"Sandbox {self._name} was killed, but its end is not confirmed yet.")

    def wait(self, timeout_s: float | None = None) -> ProgramExit | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._read_reports()
                if self._ended is not None:
                    return self._ended
            if not self._supervisor.wait_readable(None if deadline is None else deadline - time.monotonic()):
                return None

    def close(self) -> None:
        self._supervisor.close()
        os.close(self._pidfd)

    def _read_reports(self) -> None:
        while self._ended is None and (line := self._supervisor.read_status()) is not None:
            if line.word == status.EXITED:
                self._code = int(line.detail)
            if line.word == status.ENDED:
                self._end(is_oom=line.detail == "1")
            if line == STATUS_EOF:
                self._end_without_supervisor()

    def _end(self, *, is_oom: bool) -> None:
        if not self._supervisor.wait_for_exit() or not cgroups.remove_cgroups(self._folders, timeout_s=_END_TIMEOUT_S):
            raise SandboxLost(f"The control groups of sandbox {self._name} still contain processes.")
        # No code means that init itself was killed.
        code = self._code if self._code is not None else -signal.SIGKILL
        is_failure = code != 0
        self._ended = ProgramExit(code if code >= 0 else None, -code if code < 0 else None, is_oom and is_failure)

    def _end_without_supervisor(self) -> None:
        """End the tree after somebody killed the supervisor. Init dies with it, but its end must be confirmed."""
        is_oom = cgroups.oom_kill_count(self._folders) > 0
        if self._isolation is Isolation.NAMESPACES:
            self._kill_namespace()
        elif not self._folders:
            self._kill_group()
            raise SandboxLost(
                f"The supervisor of sandbox {self._name} was killed; processes of its program may still run."
            )
        cgroups.kill_members(self._folders, timeout_s=_END_TIMEOUT_S)
        self._end(is_oom=is_oom)

    def _kill_namespace(self) -> None:
        """Kill init. Its pidfd becomes readable only after the kernel has killed and reaped the whole namespace."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if not self._has_ended(_END_TIMEOUT_S):
            raise SandboxLost(f"Sandbox {self._name} was killed, but one of its processes does not end.")

    def _kill_group(self) -> None:
        """Kill the process group. Until the program has ended, nothing else can have its process group id."""
        if not self._has_ended(0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def _has_ended(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
