"""The agent's handle to a running container."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.containers import supervisor
from trainyard.instance.containers.request import ContainerRequest, run_command, write_variables
from trainyard.instance.containers.supervisor import ContainerExit
from trainyard.instance.sandbox.contract import ProgramExit, SandboxLost
from trainyard.link.containers import remove_containers

_BOOT = boot_code("trainyard.instance.containers.supervisor")
# Between two calls of `check` while a container starts.
_PAUSE_S = 0.1
_END_TIMEOUT_S = 60.0
_SIGNALS = range(1, 65)


class ContainerNotStarted(InvalidRequest):
    """The tool refused to run the container; `code` is the exit status of the tool."""

    def __init__(self, code: int) -> None:
        super().__init__(f"The container did not start; the tool exited with status {code}.")
        self.code = code


def launch_container(
    request: ContainerRequest, output_fd: int, *, on_supervisor: Callable[[int], None], check: Callable[[], None]
) -> "LaunchedContainer":
    """Start a program in its image with stdout and stderr on `output_fd`; return once it runs.

    `on_supervisor` gets the pid of the process that will make the container, before it makes anything. `check` is
    called while the container starts, which may take long with a large image, and may raise to abort.

    Raises `ContainerNotStarted` if the tool refuses, after it has written its reasons to the output, and `SandboxLost`
    if the outcome is unknown. In both cases nothing is left behind.
    """
    request.scratch_folder.mkdir(parents=True, exist_ok=True)
    request.id_file.unlink(missing_ok=True)
    write_variables(request)
    launched = LaunchedContainer(request, output_fd)
    try:
        on_supervisor(launched.supervisor_pid)
        launched.start(check)
    except BaseException:
        launched.close()
        raise
    return launched


class LaunchedContainer:
    """Implements `sandbox.contract.Sandboxed` on top of a supervisor process, which ends with the container."""

    def __init__(self, request: ContainerRequest, output_fd: int) -> None:
        self._request = request
        orders = {
            "tool": request.tool,
            "name": request.name,
            "id_file": str(request.id_file),
            "instance": str(request.folder),
            "run": run_command(request),
            "output": output_fd,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, PACKAGE, json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output_fd,),
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        self._control, self._status = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._first_pid = 0
        self._unread = b""
        self._exit: ContainerExit | None = None
        self._ended: ProgramExit | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The pid of the first process in the container, or the supervisor's if that was never known."""
        return self._first_pid or self._process.pid

    @property
    def pidfd(self) -> int:
        return self._pidfd

    @property
    def supervisor_pid(self) -> int:
        return self._process.pid

    @property
    def not_enforced(self) -> Sequence[str]:
        return self._request.not_enforced

    @property
    def is_warm(self) -> bool:
        return False

    def terminate(self) -> None:
        self._send(supervisor.TERMINATE)

    def kill(self) -> None:
        """Ask the supervisor to kill the container; if it does not answer, do so from here."""
        self._send(supervisor.KILL)
        if self.wait(_END_TIMEOUT_S) is None:
            self._process.kill()
            self._end_without_supervisor()

    def wait(self, timeout_s: float | None = None) -> ProgramExit | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._read_reports()
                if self._ended is not None:
                    return self._ended
            if not self._wait_for_report(None if deadline is None else deadline - time.monotonic()):
                return None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        os.close(self._pidfd)
        self._request.variables_file.unlink(missing_ok=True)

    def start(self, check: Callable[[], None]) -> None:
        """Start the container and wait until its program runs or has ended. `check` may raise to abort the wait."""
        self._send(supervisor.START)
        while not self._first_pid and self._exit is None and self._ended is None:
            if not self._wait_for_report(_PAUSE_S):
                check()
            with self._lock:
                self._read_reports()
        if self._exit is not None and not self._exit.has_run:
            self.wait(_END_TIMEOUT_S)
            raise ContainerNotStarted(self._exit.code)

    def _send(self, order: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._control, order)

    def _wait_for_report(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))

    def _read_reports(self) -> None:
        while self._ended is None and self._wait_for_report(0):
            chunk = os.read(self._status, 65536)
            if not chunk:
                self._end_without_supervisor()
                return
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._handle_report(*line.decode(errors="replace").split(" ", 1))

    def _handle_report(self, word: str, detail: str) -> None:
        if word == supervisor.RUNNING:
            self._first_pid = int(detail)
        if word == supervisor.EXITED:
            self._exit = ContainerExit(**json.loads(detail))
        if word == supervisor.ENDED:
            self._ended = program_exit(self._exit)
        if word == supervisor.LOST:
            raise SandboxLost(f"The state of the container {self._request.name} is unknown: {detail}")

    def _end_without_supervisor(self) -> None:
        """Remove the container after somebody killed the supervisor."""
        try:
            remove_containers(self._request.tool, self._request.folder, within_s=_END_TIMEOUT_S)
        except Unavailable as error:
            raise SandboxLost(
                f"The supervisor of the container {self._request.name} was killed: {error.message}"
            ) from error
        self._ended = program_exit(self._exit)


def program_exit(exited: ContainerExit | None) -> ProgramExit:
    """Convert the exit of a container. Tools encode signals as shells do; None means that the container was killed."""
    if exited is None:
        return ProgramExit(None, signal.SIGKILL)
    number = exited.code - 128
    if number in _SIGNALS:
        return ProgramExit(None, number, is_oom=exited.is_oom)
    return ProgramExit(exited.code, None, is_oom=exited.is_oom and exited.code != 0)
