"""The supervisor as its launcher sees it: a process with a pipe in each direction."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.sandbox import supervisor
from trainyard.instance.sandbox.contract import Forker
from trainyard.instance.sandbox.spec import SandboxSpec, encode_spec

_BOOT = boot_code("trainyard.instance.sandbox.supervisor")
_EXIT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One report: a word of status.py and its detail."""

    word: str
    detail: str


# The supervisor has ended and writes no more.
STATUS_EOF = StatusLine("", "")


class SupervisorProcess(ABC):
    """One supervisor process. Its program must run within `start_timeout_s`."""

    start_timeout_s = 60.0

    def __init__(self, output_fd: int, network: Sequence[int] = ()) -> None:
        """Start it; it waits for `send_spec`. The pipes are close-on-exec, so no other child inherits them."""
        self._status, status_writer = os.pipe()
        reader, self._control = os.pipe()
        output = fcntl.fcntl(output_fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._unread = b""
        try:
            self._start(reader, status_writer, output, *network)
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for descriptor in (output, status_writer, reader):
                os.close(descriptor)

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def wait_for_exit(self) -> bool:
        """Wait until it exits, which it does right after its last line; return False if it does not."""

    def send_spec(self, spec: SandboxSpec) -> None:
        data = encode_spec(spec)
        self.send(len(data).to_bytes(8, "little") + data)

    def send(self, data: bytes) -> None:
        """Write to the supervisor, unless it has ended."""
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._control, data) :]

    def read_status(self) -> StatusLine | None:
        """Return the next report, STATUS_EOF after the last, or None if there is none yet. Callers must not overlap."""
        while b"\n" not in self._unread:
            if not self.wait_readable(0):
                return None
            chunk = os.read(self._status, 65536)
            if not chunk:
                return STATUS_EOF
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        word, _, detail = line.decode(errors="replace").partition(" ")
        return StatusLine(word, detail)

    def wait_readable(self, timeout_s: float | None) -> bool:
        """Wait until there is a report or the supervisor has ended; return False when time runs out."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))

    def close(self) -> None:
        """Close its pipes, so that it kills what still runs and exits; wait for that."""
        self._close_pipes()
        self.wait_for_exit()

    def abort(self) -> None:
        """Close a supervisor that did not start its program."""
        self.close()

    @abstractmethod
    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        """Start the process with copies of these descriptors."""

    def _close_pipes(self) -> None:
        for descriptor in (self._status, self._control):
            os.close(descriptor)


class SpawnedSupervisor(SupervisorProcess):
    """A child of this process, with its own interpreter."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_spec(self, spec: SandboxSpec) -> None:
        spec.status_fd, spec.output_fd, *spec.network_fds = self._descriptors
        super().send_spec(spec)

    def wait_for_exit(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT_S)
            return True
        return False

    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        # The supervisor inherits them under the same numbers.
        self._descriptors = status, output, *network
        self._process = _spawn(control, self._descriptors)


class ForkedSupervisor(SupervisorProcess):
    """A child of a warm worker."""

    start_timeout_s = 10.0

    def __init__(self, output_fd: int, network: Sequence[int] = (), *, forker: Forker) -> None:
        """Fork it from a warm worker; OSError if the worker does not answer at once."""
        self._forker = forker
        super().__init__(output_fd, network)

    @property
    def pid(self) -> int:
        return self._forked.pid

    def send_spec(self, spec: SandboxSpec) -> None:
        spec.status_fd, spec.output_fd, spec.reuses_interpreter = supervisor.STATUS_FD, supervisor.OUTPUT_FD, True
        spec.network_fds = list(range(supervisor.FIRST_NETWORK_FD, supervisor.FIRST_NETWORK_FD + self._network_count))
        super().send_spec(spec)

    def wait_for_exit(self) -> bool:
        poll = select.poll()
        poll.register(self._forked.pidfd, select.POLLIN)
        return bool(poll.poll(_EXIT_TIMEOUT_S * 1000))

    def close(self) -> None:
        super().close()
        os.close(self._forked.pidfd)

    def abort(self) -> None:
        """Kill it at once, in whatever state, so that another can take its place; the kernel kills its tree."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._forked.pidfd, signal.SIGKILL)
        self.close()

    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        self._network_count = len(network)
        self._forked = self._forker.fork(control, status, output, *network)


def _spawn(control: int, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start it without anything of this process: no environment, other descriptors or terminal."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, PACKAGE],
        stdin=control,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
        env={},
        cwd="/",
        start_new_session=True,
    )
