"""A container that was launched, as its agent holds it."""

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
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.instance.containers import keeper
from trainyard.instance.containers.keeper import Exit
from trainyard.instance.containers.request import ContainerRequest, run_words, write_variables
from trainyard.instance.sandbox.contract import Ended, SandboxLost
from trainyard.link.containers import remove_containers

_PACKAGE = Path(__file__).resolve().parents[2]
# The package is entered past its __init__, which serves the SDK and imports more than a keeper needs.
_BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
    "from trainyard.instance.containers.keeper import main; main()"
)
_PAUSE_S = 0.1  # between two checks while it starts
_END_LIMIT_S = 60.0
_SIGNALS = range(1, 65)


class NotStarted(InvalidRequest):
    """The tool refused to run the container; `code` is its own exit status."""

    def __init__(self, code: int) -> None:
        super().__init__(f"The container was not started; the tool ended with {code}.")
        self.code = code


def launch_container(
    request: ContainerRequest, output_fd: int, *, on_keeper: Callable[[int], None], check: Callable[[], None]
) -> "LaunchedContainer":
    """Start a program in its image with its output and errors going to `output_fd`; return once it runs.

    `on_keeper` is told the pid of the process that will make the container, before it makes anything; `check` is called
    while it does, which may take long with a large image, and may raise to end that.

    `NotStarted` when the tool refuses, whose reasons it has written to the output by then; `SandboxLost` when that is
    not even known. Nothing is left behind then.
    """
    request.scratch_folder.mkdir(parents=True, exist_ok=True)
    request.id_file.unlink(missing_ok=True)
    write_variables(request)
    launched = LaunchedContainer(request, output_fd)
    try:
        on_keeper(launched.keeper_pid)
        launched.start(check)
    except BaseException:
        launched.close()
        raise
    return launched


class LaunchedContainer:
    """Implements `sandbox.contract.Sandboxed` over a keeper, whose end is that of the container."""

    def __init__(self, request: ContainerRequest, output_fd: int) -> None:
        self._request = request
        orders = {
            "tool": request.tool,
            "name": request.name,
            "id_file": str(request.id_file),
            "instance": str(request.folder),
            "run": run_words(request),
            "output": output_fd,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE), json.dumps(orders)],
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
        self._exit: Exit | None = None
        self._ended: Ended | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """That of the first process in the container; the keeper's when it was never known."""
        return self._first_pid or self._process.pid

    @property
    def pidfd(self) -> int:
        return self._pidfd

    @property
    def keeper_pid(self) -> int:
        return self._process.pid

    @property
    def not_enforced(self) -> Sequence[str]:
        return self._request.not_enforced

    @property
    def is_warm(self) -> bool:
        return False

    def terminate(self) -> None:
        self._send(keeper.TERMINATE)

    def kill(self) -> None:
        """The keeper is asked; one that does not answer is not needed."""
        self._send(keeper.KILL)
        if self.wait(_END_LIMIT_S) is None:
            self._process.kill()
            self._end_without_keeper()

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._take_reports()
                if self._ended is not None:
                    return self._ended
            if not self._await_report(None if deadline is None else deadline - time.monotonic()):
                return None

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_S)
        os.close(self._pidfd)
        self._request.variables_file.unlink(missing_ok=True)

    def start(self, check: Callable[[], None]) -> None:
        """Have it run, and wait until the program does or did. What `check` raises ends the waiting."""
        self._send(keeper.START)
        while not self._first_pid and self._exit is None and self._ended is None:
            if not self._await_report(_PAUSE_S):
                check()
            with self._lock:
                self._take_reports()
        if self._exit is not None and not self._exit.has_run:
            self.wait(_END_LIMIT_S)
            raise NotStarted(self._exit.code)

    def _send(self, order: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._control, order)

    def _await_report(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))

    def _take_reports(self) -> None:
        while self._ended is None and self._await_report(0):
            chunk = os.read(self._status, 65536)
            if not chunk:
                self._end_without_keeper()
                return
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._take(*line.decode(errors="replace").split(" ", 1))

    def _take(self, word: str, detail: str) -> None:
        if word == keeper.RUNNING:
            self._first_pid = int(detail)
        if word == keeper.EXITED:
            self._exit = Exit(**json.loads(detail))
        if word == keeper.ENDED:
            self._ended = ended_of(self._exit)
        if word == keeper.LOST:
            raise SandboxLost(f"The container {self._request.name} is out of control: {detail}")

    def _end_without_keeper(self) -> None:
        """Somebody killed the keeper; what it kept is ended from here."""
        try:
            remove_containers(self._request.tool, self._request.folder, within_s=_END_LIMIT_S)
        except Unavailable as error:
            raise SandboxLost(
                f"The keeper of the container {self._request.name} was killed: {error.message}"
            ) from error
        self._ended = ended_of(self._exit)


def ended_of(found: Exit | None) -> Ended:
    """A tool tells a signal as shells do; without a word of it the container was killed."""
    if found is None:
        return Ended(None, signal.SIGKILL)
    number = found.code - 128
    if number in _SIGNALS:
        return Ended(None, number, is_oom=found.is_oom)
    return Ended(found.code, None, is_oom=found.is_oom and found.code != 0)
