"""Watching a program that runs: its output, the orders that come for it, and its time."""

import fcntl
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.clock import boottime
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.disk import DiskWatch
from trainyard.instance.agent.hangs import HangWatch
from trainyard.instance.agent.orders import POLL_S, Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.pipes import Pipes
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.scanning import PAUSE_S as SCAN_PAUSE_S
from trainyard.instance.sandbox.contract import Ended, Sandboxed

MAX_RUNTIME = "max_runtime"  # the reason of a stop that nobody ordered

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How and when a run ended. `stop_reason` is why it was stopped, None when the program ended by itself.

    `overuse` is why it was killed for what it took of the machine; nothing otherwise. `is_killed` tells whether it was
    killed because that was ordered.
    """

    ended: Ended
    stop_reason: str | None = None
    overuse: str = ""
    is_killed: bool = False
    at_us: int = 0


class OutputPipe:
    """The pipe that carries both streams of a program, so that their order is kept."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        with suppress(OSError):  # a user may have used up what all pipes together may hold
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def read(self) -> bytes | None:
        """What there is; nothing at its end, None when there is nothing for now."""
        try:
            return os.read(self.reader, _READ_BYTES)
        except BlockingIOError:
            return None

    @property
    def capacity(self) -> int:
        """How many bytes it holds at most."""
        return fcntl.fcntl(self.reader, fcntl.F_GETPIPE_SZ)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)


class Supervision:
    """Runs programs one after another; each goes on until it ends, is stopped, or its time is over.

    A stop is SIGTERM, then SIGKILL of the whole tree when the grace is over. An order to kill is SIGKILL at once.
    """

    def __init__(
        self,
        output: Output,
        orders: Orders,
        *,
        grace_s: float,
        disk: DiskWatch,
        pipes: Pipes | None = None,
        hangs: HangWatch | None = None,
        debugging: Debugging | None = None,
    ) -> None:
        self._output = output
        self._orders = orders
        self._grace_s = grace_s
        self._disk = disk
        self._pipes = pipes
        self._hangs = hangs
        self._debugging = debugging

    def run(
        self,
        start: Callable[[OutputPipe], Sandboxed],
        *,
        limit_s: float | None = None,
        folders: Callable[[], Sequence[Path]] = tuple,
        on_start: Callable[[Sandboxed], None],
    ) -> RunEnd:
        """Start a program that writes to a pipe, and see it through; raises what `start` raises.

        `folders` tells, once it runs, which ones it may fill besides those of the instance.
        """
        pipe = OutputPipe()
        try:
            program = start(pipe)
            pipe.close_writer()
            try:
                on_start(program)
                return _Run(
                    program,
                    pipe,
                    output=self._output,
                    orders=self._orders,
                    grace_s=self._grace_s,
                    limit_s=limit_s,
                    disk=self._disk.including(folders()),
                    pipes=self._pipes,
                    hangs=self._hangs,
                    debugging=self._debugging,
                ).until_end()
            finally:
                program.kill()
                program.close()
        finally:
            pipe.close()


class _Run:
    def __init__(
        self,
        program: Sandboxed,
        pipe: OutputPipe,
        *,
        output: Output,
        orders: Orders,
        grace_s: float,
        limit_s: float | None,
        disk: DiskWatch,
        pipes: Pipes | None,
        hangs: HangWatch | None,
        debugging: Debugging | None,
    ) -> None:
        self._program = program
        self._pipe = pipe
        self._output = output
        self._orders = orders
        self._grace_s = grace_s
        self._limit_at = None if limit_s is None else boottime() + limit_s
        self._disk = disk
        self._pipes = pipes
        self._hangs = hangs
        self._debugging = debugging
        self._stop_reason: str | None = None
        self._overuse = ""
        self._is_killed = False
        self._kill_at: float | None = None
        self._poll = select.poll()
        self._poll.register(pipe.reader, select.POLLIN)
        self._poll.register(program.pidfd, select.POLLIN)
        if debugging is not None:
            self._poll.register(debugging.fileno(), select.POLLIN)

    def until_end(self) -> RunEnd:
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll(self._pause_s() * 1000)}
            if self._pipe.reader in ready and self._take() == b"":
                self._poll.unregister(self._pipe.reader)  # the program closed its output and may yet run on
            if self._program.pidfd in ready:
                break
            self._follow_orders()
            self._watch_time()
            self._watch_disk()
            self._watch_pipes()
            self._watch_rules()
            if self._hangs is not None:
                self._hangs.look(boottime())
            self._output.save()
            if self._output.scan is not None:
                self._output.scan.step()
        at_us = now_us()
        ended = self._program.wait()
        assert ended is not None, "waiting without a limit ends with the program"
        self._take_rest()
        return RunEnd(ended, self._stop_reason, self._overuse, self._is_killed, at_us)

    def _pause_s(self) -> float:
        """How long to wait when nothing happens."""
        is_scanning = self._output.scan is not None and self._output.scan.is_busy
        return SCAN_PAUSE_S if is_scanning else POLL_S

    def _take_rest(self) -> None:
        """Read what the program left in the pipe, and no more: where a process outlived it, that may write for ever."""
        left = self._pipe.capacity
        while left > 0 and (data := self._take()):
            left -= len(data)

    def _take(self) -> bytes | None:
        data = self._pipe.read()
        if data:
            self._output.write(data)
        return data

    def _follow_orders(self) -> None:
        self._orders.read()
        if self._orders.is_killed:
            self._is_killed = True
            self._program.kill()
        elif self._orders.stop_reason is not None:
            self._stop(self._orders.stop_reason)

    def _watch_time(self) -> None:
        now = boottime()
        if self._kill_at is not None and now >= self._kill_at:
            self._program.kill()
        elif self._limit_at is not None and now >= self._limit_at:
            self._stop(MAX_RUNTIME)

    def _watch_disk(self) -> None:
        overuse = self._disk.look(boottime(), root=self._program.pid)
        if overuse:
            self._overuse = overuse
            self._program.kill()

    def _watch_pipes(self) -> None:
        if self._pipes is not None and self._pipes.failure is not None:
            self._program.kill()

    def _watch_rules(self) -> None:
        reason = self._debugging.look(boottime()) if self._debugging is not None else None
        if reason is not None:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
            self._kill_at = boottime() + self._orders.grace_s(self._grace_s)
            self._program.terminate()
