"""A program that was launched, as its launcher holds it."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence

from trainyard.instance.sandbox import groups, keeper, status
from trainyard.instance.sandbox.contract import Ended, Isolation, SandboxLost
from trainyard.instance.sandbox.keeper_process import END, ForkedKeeper, KeeperProcess

_END_LIMIT_S = 30.0


class LaunchedProgram:
    """Implements `contract.Sandboxed` over a keeper."""

    def __init__(
        self,
        keeper_process: KeeperProcess,
        pidfd: int,
        *,
        name: str,
        pid: int,
        isolation: Isolation,
        folders: Sequence[str],
        not_enforced: Sequence[str],
    ) -> None:
        self._keeper = keeper_process
        self._pidfd = pidfd
        self._name = name
        self._pid = pid
        self._isolation = isolation
        self._folders = list(folders)
        self._not_enforced = tuple(not_enforced)
        self._code: int | None = None
        self._ended: Ended | None = None
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
        return isinstance(self._keeper, ForkedKeeper)

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)  # or a program that is stopped would not learn of it

    def kill(self) -> None:
        """The keeper is asked, and init is killed from here as well, so that a keeper which hangs is not needed."""
        self._keeper.send(keeper.KILL)
        if self._isolation is Isolation.NAMESPACES:
            self._kill_namespace()
        if self.wait(_END_LIMIT_S) is None:
            raise SandboxLost(f"Sandbox {self._name} was killed, but its end cannot be proven yet.")

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._take_reports()
                if self._ended is not None:
                    return self._ended
            if not self._keeper.await_report(None if deadline is None else deadline - time.monotonic()):
                return None

    def close(self) -> None:
        self._keeper.close()
        os.close(self._pidfd)

    def _take_reports(self) -> None:
        while self._ended is None and (line := self._keeper.take_line()) is not None:
            if line.word == status.EXITED:
                self._code = int(line.detail)
            if line.word == status.ENDED:
                self._end(is_oom=line.detail == "1")
            if line == END:
                self._end_without_keeper()

    def _end(self, *, is_oom: bool) -> None:
        if not self._keeper.has_gone() or not groups.remove(self._folders, timeout_s=_END_LIMIT_S):
            raise SandboxLost(f"The control groups of sandbox {self._name} do not get empty.")
        code = self._code if self._code is not None else -signal.SIGKILL  # init itself was killed
        is_failure = code != 0
        self._ended = Ended(code if code >= 0 else None, -code if code < 0 else None, is_oom and is_failure)

    def _end_without_keeper(self) -> None:
        """Somebody killed the keeper. Init went with it; what is left of that is to see it gone."""
        is_oom = groups.oom_kills(self._folders) > 0
        if self._isolation is Isolation.NAMESPACES:
            self._kill_namespace()
        elif not self._folders:
            self._kill_group()
            raise SandboxLost(f"The keeper of sandbox {self._name} was killed; what its program started may still run.")
        groups.empty(self._folders, timeout_s=_END_LIMIT_S)
        self._end(is_oom=is_oom)

    def _kill_namespace(self) -> None:
        """A pidfd of init becomes readable only when the kernel has killed and collected everyone in its namespace."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if not self._has_ended(_END_LIMIT_S):
            raise SandboxLost(f"Sandbox {self._name} was killed, but a process of it does not end.")

    def _kill_group(self) -> None:
        """Until the program has ended, its number is that of its process group and of no other."""
        if not self._has_ended(0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def _has_ended(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
