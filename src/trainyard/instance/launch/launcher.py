"""Starts the ranks of one instance, forwards signals to them, and ends all when one has failed."""

import os
import select
import signal
import time
from typing import NoReturn

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch import report
from trainyard.instance.launch.output import STALE_S, OutputMerger, OutputStream
from trainyard.instance.launch.servers import done_command, is_server_needed, server_command, server_environment
from trainyard.instance.launch.spec import LauncherSpec
from trainyard.instance.launch.variables import rank_variables, server_variables

# After the first failure, other ranks may still fail by themselves: a rank that lost a connection may be noticed before
# the rank that broke it.
FAILURE_WINDOW_S = 1.0
# Between SIGTERM and SIGKILL for the ranks that are left after a failure.
GRACE_S = 10.0

_NEVER = float("inf")
# Between two checks whether a server is still needed.
_SERVER_PAUSE_S = 2.0
_MAX_OPEN_FILES = 65536


class RankEntered(BaseException):
    """This process has become a rank with this environment; the caller decides what it runs."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self.environment = environment


class _RankProcess:
    """A rank, or the server if `local_rank` is None, and the streams of its output."""

    def __init__(self, local_rank: int | None, *, pid: int, streams: list[OutputStream], restarts: int = 0) -> None:
        self.local_rank = local_rank
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.streams = streams
        self.restarts = restarts

    @property
    def tail(self) -> bytes:
        """What it wrote last; its streams share one tail."""
        return bytes(self.streams[0].tail)


class RankLauncher:
    """Runs the ranks of an instance once. Each gets this environment and its own variables.

    `kept_fd` is a descriptor that ranks inherit besides their streams; `output` is where their lines go. `only` is the
    local rank and global rank to run if other launchers run the rest; the caller then makes sure that all end together.
    """

    def __init__(
        self,
        spec: LauncherSpec,
        environment: dict[str, str],
        *,
        kept_fd: int = -1,
        output: int = 1,
        only: tuple[int, int] | None = None,
    ) -> None:
        self._spec = spec
        self._cluster = spec.cluster
        self._environment = environment
        self._kept_fd = kept_fd
        self._is_single_rank = only is not None
        first = spec.cluster.first_rank
        self._ranks = dict([only]) if only else {local: first + local for local in range(spec.cluster.local_size)}
        self._merger = OutputMerger(output)
        self._poll = select.poll()
        # By pidfd.
        self._running: dict[int, _RankProcess] = {}
        self._streams: dict[int, OutputStream] = {}
        self._failures: list[report.FailureReport] = []
        # Whether SIGTERM has arrived.
        self.is_stopped = False
        self._term_at = self._kill_at = _NEVER
        self._wakeup_reader = self._wakeup_writer = -1
        # Pids.
        self._announcers: list[int] = []

    def run(self) -> int:
        """Run all ranks to their ends, and return the exit code of the first that failed, or 0.

        A negative code is that of a signal. The caller ends with it. In each rank, `RankEntered` is raised instead.
        """
        if self._cluster.has_server:
            self._start(None)
        for local_rank in self._ranks:
            self._start(local_rank)
        if self._kept_fd >= 0:
            os.close(self._kept_fd)
        self._report_ranks()
        self._listen_to_signals()
        while self._running and self._has_work_left():
            self._step()
        # Only servers that nobody uses any more are left.
        self._signal_all(signal.SIGKILL)
        self._end_announcers()
        return self._code

    @property
    def _code(self) -> int:
        code = self._failures[0]["code"] if self._failures else 0
        assert isinstance(code, int), "a failure has an exit code"
        return code

    def _has_work_left(self) -> bool:
        """Return whether a running process still matters."""
        is_training = any(each.local_rank is not None for each in self._running.values())
        return is_training or (not self.is_stopped and not self._failures and is_server_needed(self._cluster))

    def _start(self, local_rank: int | None, *, restarts: int = 0) -> None:
        names = ("stdout", "stderr") if self._has_prefixes else ("both",)
        pipes = [os.pipe() for _ in names]
        pid = os.fork()
        if pid == 0:
            self._drop_launcher_state([writer for _, writer in pipes])
            self._become_process(local_rank, restarts)
        tail = bytearray()
        streams = []
        for name, (reader, writer) in zip(names, pipes, strict=True):
            os.close(writer)
            streams.append(OutputStream(reader, prefix=self._prefix(local_rank, name), tail=tail))
            self._streams[reader] = streams[-1]
            self._poll.register(reader, select.POLLIN)
        started = _RankProcess(local_rank, pid=pid, streams=streams, restarts=restarts)
        self._running[started.pidfd] = started
        self._poll.register(started.pidfd, select.POLLIN)

    @property
    def _has_prefixes(self) -> bool:
        return self._cluster.kind is LaunchKind.MPI

    def _prefix(self, local_rank: int | None, name: str) -> bytes:
        """Return the prefix of each line of an MPI job, as on SageMaker."""
        if not self._has_prefixes or local_rank is None:
            return b""
        return f"[1,mpirank:{self._ranks[local_rank]},{self._cluster.host}]<{name}>:".encode()

    def _drop_launcher_state(self, outputs: list[int]) -> None:
        """Drop everything of the launcher in a process that it has forked."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[-1], 2)
        keep = self._kept_fd if self._kept_fd >= 0 else _MAX_OPEN_FILES
        if self._wakeup_reader >= 0 and self._kept_fd >= 0:
            # On a restart, the launcher has already closed this descriptor.
            os.dup2(os.open(os.devnull, os.O_WRONLY), keep)
        os.closerange(3, keep)
        os.closerange(keep + 1, _MAX_OPEN_FILES)

    def _become_process(self, local_rank: int | None, restarts: int) -> None:
        spec, cluster = self._spec, self._cluster
        if local_rank is None:
            environment = server_environment(cluster, self._environment, secret=spec.secret)
            execute(server_command(cluster, spec.python), environment)
        raise RankEntered(self._rank_environment(local_rank, restarts))

    def _rank_environment(self, local_rank: int, restarts: int = 0) -> dict[str, str]:
        spec, cluster = self._spec, self._cluster
        threads = {"OMP_NUM_THREADS": str(spec.threads)} if cluster.local_size > 1 else {}
        own = {
            **rank_variables(cluster, local_rank, rank=self._ranks[local_rank], restarts=restarts),
            **server_variables(cluster, spec.secret),
        }
        return {**threads, **self._environment, **own}

    def _report_ranks(self) -> None:
        ranks = {each.local_rank: each.pid for each in self._running.values() if each.local_rank is not None}
        report.add_ranks(self._spec.folder, {self._ranks[local]: pid for local, pid in ranks.items()})

    def _listen_to_signals(self) -> None:
        self._wakeup_reader, self._wakeup_writer = os.pipe()
        os.set_blocking(self._wakeup_writer, False)
        signal.set_wakeup_fd(self._wakeup_writer)
        # The signal arrives through the wakeup descriptor.
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._poll.register(self._wakeup_reader, select.POLLIN)

    def _step(self) -> None:
        ready = [descriptor for descriptor, _ in self._poll.poll(self._pause_s() * 1000)]
        now = time.monotonic()
        for descriptor in ready:
            if descriptor in self._streams and not self._merger.forward(self._streams[descriptor], now):
                self._drop_stream(descriptor)
        if self._wakeup_reader in ready:
            os.read(self._wakeup_reader, 64)
            self.is_stopped = True
            self._signal_all(signal.SIGTERM)
        for descriptor in ready:
            if descriptor in self._running:
                self._reap(self._running.pop(descriptor), now)
        for stream in self._streams.values():
            self._merger.flush_stale(stream, now)
        self._end_others(now)

    def _pause_s(self) -> float:
        until = min(self._term_at, self._kill_at) - time.monotonic()
        if any(stream.partial_line for stream in self._streams.values()):
            until = min(until, STALE_S)
        return max(0.0, min(until, _SERVER_PAUSE_S if self._cluster.has_server else 60.0))

    def _drop_stream(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._streams[descriptor]
        os.close(descriptor)

    def _reap(self, process: _RankProcess, now: float) -> None:
        at_us = time.time_ns() // 1000
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        self._poll.unregister(process.pidfd)
        os.close(process.pidfd)
        for stream in process.streams:
            # A child of the rank may still hold the stream open, so do not wait for its end.
            if stream.reader in self._streams:
                self._merger.drain(stream, now)
        is_wanted = self._kill_at != _NEVER or (self._is_single_rank and self.is_stopped)
        if code == 0:
            self._announce_done(process)
        if code == 0 or is_wanted:
            return
        if self._may_restart(process):
            self._restart(process, code)
            return
        rank = None if process.local_rank is None else self._ranks[process.local_rank]
        self._failures.append(report.make_failure(rank, code=code, at_us=at_us, tail=process.tail))
        report.add_failure(self._spec.folder, self._failures[-1])
        self._term_at = min(self._term_at, now + FAILURE_WINDOW_S)

    def _announce_done(self, process: _RankProcess) -> None:
        """Tell all servers that a worker has succeeded. They wait for it, and it may not have told them."""
        if self._cluster.kind is not LaunchKind.PARAMETER_SERVER or process.local_rank is None:
            return
        pid = os.fork()
        if pid == 0:
            # Its output must not appear in the program's log.
            self._drop_launcher_state([os.open(os.devnull, os.O_WRONLY)])
            execute(done_command(self._spec.python), self._rank_environment(process.local_rank))
        self._announcers.append(pid)

    def _end_announcers(self) -> None:
        for pid in self._announcers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _may_restart(self, process: _RankProcess) -> bool:
        is_rank = process.local_rank is not None and process.restarts < self._cluster.max_restarts
        return is_rank and not self.is_stopped and not self._failures

    def _restart(self, process: _RankProcess, code: int) -> None:
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        rank = self._ranks[process.local_rank or 0]
        count = f"{process.restarts + 1} of {self._cluster.max_restarts}"
        self._merger.write_line(f"[trainyard] rank {rank} {ended}; restarting it, {count}.")
        self._start(process.local_rank, restarts=process.restarts + 1)
        self._report_ranks()

    def _end_others(self, now: float) -> None:
        if now >= self._kill_at:
            self._signal_all(signal.SIGKILL)
            self._kill_at = now + GRACE_S
        elif now >= self._term_at:
            self._term_at, self._kill_at = _NEVER, now + GRACE_S
            self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: int) -> None:
        for process in self._running.values():
            signal.pidfd_send_signal(process.pidfd, number)
            if number == signal.SIGTERM:
                # A stopped process would not see the signal otherwise.
                signal.pidfd_send_signal(process.pidfd, signal.SIGCONT)


def execute(words: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute another program, or write why that fails and exit."""
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        os.write(2, f"Cannot execute {words[0]}: {error.strerror}\n".encode())
        os._exit(127)


def end_process(code: int) -> NoReturn:
    """End this process as a rank ended: with its exit code or by its signal."""
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
