"""The keeper as its launcher sees it: a process with a pipe to it and a pipe from it."""

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
from pathlib import Path

from trainyard.instance.sandbox import keeper
from trainyard.instance.sandbox.contract import Forker
from trainyard.instance.sandbox.orders import Orders, encode

_PACKAGE = Path(__file__).resolve().parents[2]
# The package is entered past its __init__, which serves the SDK and imports more than a keeper can wait for.
_BOOT = (
    "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:]; "
    "from trainyard.instance.sandbox.keeper import main; main()"
)
_GONE_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """One report: a word of status.py and what it says of it."""

    word: str
    detail: str


END = Line("", "")  # the keeper writes no more, since it has ended


class KeeperProcess(ABC):
    """One keeper, started and spoken to. `start_limit_s` is how long its program may take to run."""

    start_limit_s = 60.0

    def __init__(self, output_fd: int, network: Sequence[int] = ()) -> None:
        """Start it, to await its orders. No other child gets hold of the pipes, which are closed on exec."""
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
    def has_gone(self) -> bool:
        """Wait for its end, which comes right after its last line; False when it does not."""

    def order(self, orders: Orders) -> None:
        data = encode(orders)
        self.send(len(data).to_bytes(8, "little") + data)

    def send(self, data: bytes) -> None:
        """Write to the keeper; one that has ended needs nothing any more."""
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._control, data) :]

    def take_line(self) -> Line | None:
        """The next report, END after the last, None when there is none yet. Callers take turns."""
        while b"\n" not in self._unread:
            if not self.await_report(0):
                return None
            chunk = os.read(self._status, 65536)
            if not chunk:
                return END
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        word, _, detail = line.decode(errors="replace").partition(" ")
        return Line(word, detail)

    def await_report(self, timeout_s: float | None) -> bool:
        """Wait until something has come or the keeper has ended; False when time runs out."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1000))

    def close(self) -> None:
        """Let go of it: its input ends, so it kills what it still keeps, and ends."""
        self._close_pipes()
        self.has_gone()

    def give_up(self) -> None:
        """Let go of one that did not start its program."""
        self.close()

    @abstractmethod
    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        """Start the process on copies of these descriptors."""

    def _close_pipes(self) -> None:
        for descriptor in (self._status, self._control):
            os.close(descriptor)


class SpawnedKeeper(KeeperProcess):
    """A child of this process, and an interpreter of its own."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, orders: Orders) -> None:
        orders.status_fd, orders.output_fd, *orders.network_fds = self._numbers
        super().order(orders)

    def has_gone(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_LIMIT_S)
            return True
        return False

    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        self._numbers = status, output, *network  # in the keeper, they are what they were here
        self._process = _spawn(control, self._numbers)


class ForkedKeeper(KeeperProcess):
    """A child of a warm worker."""

    start_limit_s = 10.0

    def __init__(self, output_fd: int, network: Sequence[int] = (), *, forker: Forker) -> None:
        """Raises OSError when the worker does not do it at once."""
        self._forker = forker
        super().__init__(output_fd, network)

    @property
    def pid(self) -> int:
        return self._forked.pid

    def order(self, orders: Orders) -> None:
        orders.status_fd, orders.output_fd, orders.stays = keeper.STATUS, keeper.OUTPUT, True
        orders.network_fds = list(range(keeper.NETWORK, keeper.NETWORK + self._joined))
        super().order(orders)

    def has_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._forked.pidfd, select.POLLIN)
        return bool(poll.poll(_GONE_LIMIT_S * 1000))

    def close(self) -> None:
        super().close()
        os.close(self._forked.pidfd)

    def give_up(self) -> None:
        """End it at once, in whatever state it is, for another to take its place; the kernel ends what it kept."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._forked.pidfd, signal.SIGKILL)
        self.close()

    def _start(self, control: int, status: int, output: int, *network: int) -> None:
        self._joined = len(network)
        self._forked = self._forker.fork(control, status, output, *network)


def _spawn(control: int, kept: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start it with nothing of this process: no environment, no descriptor, no terminal."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE)],
        stdin=control,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=kept,
        env={},
        cwd="/",
        start_new_session=True,
    )
