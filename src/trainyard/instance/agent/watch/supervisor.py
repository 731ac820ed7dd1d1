"""Supervises a running program: its output, the commands for it, its time limit, and its use of the disk."""

import fcntl
import os
import select
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainyard.foundation.clock import boottime
from trainyard.instance.agent.commands import POLL_S
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.disk import DiskWatch
from trainyard.instance.agent.watch.metric_scan import PAUSE_S as SCAN_PAUSE_S
from trainyard.instance.sandbox.contract import ProgramExit, Sandboxed

# The reason of a stop that no command asked for.
MAX_RUNTIME = "max_runtime"

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How and when a program ended.

    `stop_reason` is why it was stopped; None when it ended by itself. `overuse` is why it was killed for using too much
    of the machine; empty otherwise. `is_killed` means that a command killed it.
    """

    ended: ProgramExit
    stop_reason: str | None = None
    overuse: str = ""
    is_killed: bool = False
    at_us: int = 0


class OutputPipe:
    """One pipe for both streams of a program, so that their order is kept."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader, False)
        # Fails when a user has used up the kernel's limit for all pipes together.
        with suppress(OSError):
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def read(self) -> bytes | None:
        """Return what is in the pipe: no bytes at its end, None when there is nothing yet."""
        try:
            return os.read(self.reader, _READ_BYTES)
        except BlockingIOError:
            return None

    @property
    def capacity(self) -> int:
        """The size of the pipe in bytes."""
        return fcntl.fcntl(self.reader, fcntl.F_GETPIPE_SZ)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        self.close_writer()
        os.close(self.reader)


class Watch(Protocol):
    """Something that looks at the program now and then."""

    def poll(self, now: float) -> None: ...


class ProgramSupervisor:
    """Runs one program until it ends, is stopped, or reaches its time limit.

    A stop sends SIGTERM, and SIGKILL to the whole process tree when the grace period is over. A kill command sends
    SIGKILL at once.
    """

    def __init__(
        self,
        context: InstanceContext,
        *,
        limit_s: float | None,
        pipes: PipeChannels,
        watches: Sequence[Watch],
        debugger: Debugger | None,
    ) -> None:
        self._context = context
        self._output = context.output
        self._commands = context.commands
        self._limit_s = limit_s
        self._pipes = pipes
        self._watches = watches
        self._debugger = debugger
        self._limit_at: float | None = None
        self._kill_at: float | None = None
        self._stop_reason: str | None = None
        self._overuse = ""
        self._is_killed = False

    def run(
        self,
        start: Callable[[OutputPipe], Sandboxed],
        *,
        folders: Callable[[], Sequence[Path]],
        on_start: Callable[[Sandboxed], None],
    ) -> RunEnd:
        """Start a program that writes to a pipe, and watch it until it ends. Raises what `start` raises.

        Once the program runs, `folders` returns the folders it may fill besides those of the instance.
        """
        with closing(OutputPipe()) as pipe:
            program = start(pipe)
            pipe.close_writer()
            try:
                on_start(program)
                return self._watch(program, pipe, self._disk_watch(folders()))
            finally:
                program.kill()
                program.close()

    def _disk_watch(self, more_folders: Sequence[Path]) -> DiskWatch:
        folder = self._context.folder
        return DiskWatch(
            (folder.ml, folder.scratch, folder.launch, folder.logs, *more_folders),
            reserve_bytes=self._context.spec.objects.reserve_bytes,
        )

    def _watch(self, program: Sandboxed, pipe: OutputPipe, disk: DiskWatch) -> RunEnd:
        self._limit_at = None if self._limit_s is None else boottime() + self._limit_s
        poll = select.poll()
        poll.register(pipe.reader, select.POLLIN)
        poll.register(program.pidfd, select.POLLIN)
        if self._debugger is not None:
            poll.register(self._debugger.fileno(), select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(self._poll_timeout_s() * 1000)}
            if pipe.reader in ready and self._read_output(pipe) == b"":
                # The program closed its output; it may still be running.
                poll.unregister(pipe.reader)
            if program.pidfd in ready:
                break
            self._follow_commands(program)
            self._check_time(program)
            self._check_disk(program, disk)
            self._check_pipes(program)
            self._check_rules(program)
            for watch in self._watches:
                watch.poll(boottime())
            self._output.flush()
            if self._output.scan is not None:
                self._output.scan.step()
        at_us = now_us()
        ended = program.wait()
        assert ended is not None, "waiting without a timeout returns when the program has ended"
        self._read_remaining_output(pipe)
        return RunEnd(ended, self._stop_reason, self._overuse, self._is_killed, at_us)

    def _poll_timeout_s(self) -> float:
        is_scanning = self._output.scan is not None and self._output.scan.is_busy
        return SCAN_PAUSE_S if is_scanning else POLL_S

    def _read_remaining_output(self, pipe: OutputPipe) -> None:
        """Read what the program left in the pipe, and no more: a process that outlived it may write forever."""
        left = pipe.capacity
        while left > 0 and (data := self._read_output(pipe)):
            left -= len(data)

    def _read_output(self, pipe: OutputPipe) -> bytes | None:
        data = pipe.read()
        if data:
            self._output.write(data)
        return data

    def _follow_commands(self, program: Sandboxed) -> None:
        self._commands.poll()
        if self._commands.is_killed:
            self._is_killed = True
            program.kill()
        elif self._commands.stop_reason is not None:
            self._stop(program, self._commands.stop_reason)

    def _check_time(self, program: Sandboxed) -> None:
        now = boottime()
        if self._kill_at is not None and now >= self._kill_at:
            program.kill()
        elif self._limit_at is not None and now >= self._limit_at:
            self._stop(program, MAX_RUNTIME)

    def _check_disk(self, program: Sandboxed, disk: DiskWatch) -> None:
        overuse = disk.poll(boottime(), root=program.pid)
        if overuse:
            self._overuse = overuse
            program.kill()

    def _check_pipes(self, program: Sandboxed) -> None:
        if self._pipes.failure is not None:
            program.kill()

    def _check_rules(self, program: Sandboxed) -> None:
        reason = self._debugger.poll(boottime()) if self._debugger is not None else None
        if reason is not None:
            self._stop(program, reason)

    def _stop(self, program: Sandboxed, reason: str) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
            self._kill_at = boottime() + self._commands.grace_s(self._context.spec.grace_s)
            program.terminate()
