"""Starts the ranks of one instance, passes signals on to them, and ends all when one has failed."""

import os
import select
import signal
import time
from typing import NoReturn

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.instance.launch import report
from trainyard.instance.launch.orders import LaunchOrders
from trainyard.instance.launch.output import STALE_S, Merger, Stream
from trainyard.instance.launch.servers import announcement_command, is_needed, server_command, server_environment
from trainyard.instance.launch.variables import rank_variables, server_variables

SETTLE_S = 1.0  # in which others may yet fail by themselves: who lost a connection may be heard before who broke it
GRACE_S = 10.0  # between SIGTERM and SIGKILL for those that are left when one has failed

_NEVER = float("inf")
_SERVER_PAUSE_S = 2.0  # between two looks whether a server is still needed
_MOST_FILES = 65536


class IsRank(BaseException):
    """This process is a rank now, with this environment; what it runs is for the caller to say."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self.environment = environment


class _Process:
    """A rank, or the server beside it, and the streams that bring what it writes."""

    def __init__(self, local_rank: int | None, *, pid: int, streams: list[Stream], restarts: int = 0) -> None:
        self.local_rank = local_rank  # None is the server
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.streams = streams
        self.restarts = restarts

    @property
    def tail(self) -> bytes:
        """What it wrote last; both its streams have the same one."""
        return bytes(self.streams[0].tail)


class Launcher:
    """One run of the ranks of an instance, which get this environment and what is theirs.

    `kept` is a descriptor that ranks have of it beside their streams; `output` is where their lines go. `only` is the
    rank to run, by its number on this host and its number among all, where others are run by other launchers. Then it
    is for the caller to see to it that others end with it.
    """

    def __init__(
        self,
        orders: LaunchOrders,
        environment: dict[str, str],
        *,
        kept: int = -1,
        output: int = 1,
        only: tuple[int, int] | None = None,
    ) -> None:
        self._orders = orders
        self._cluster = orders.cluster
        self._environment = environment
        self._kept = kept
        self._is_one_of_many = only is not None
        first = orders.cluster.first_rank
        self._ranks = dict([only]) if only else {local: first + local for local in range(orders.cluster.here)}
        self._merger = Merger(output)
        self._poll = select.poll()
        self._running: dict[int, _Process] = {}  # by descriptors of them
        self._streams: dict[int, Stream] = {}
        self._failures: list[report.Failure] = []
        self.is_stopped = False  # by SIGTERM
        self._term_at = self._kill_at = _NEVER
        self._woken = self._waker = -1
        self._announcers: list[int] = []  # pids

    def run(self) -> int:
        """Run all ranks to their ends; the exit code of the first that failed, or 0. IsRank is raised in each of them.

        A negative code is that of a signal. The caller ends with it.
        """
        if self._cluster.has_server:
            self._start(None)
        for local_rank in self._ranks:
            self._start(local_rank)
        if self._kept >= 0:
            os.close(self._kept)
        self._tell_ranks()
        self._listen_to_signals()
        while self._running and self._is_awaited():
            self._step()
        self._signal_all(signal.SIGKILL)  # what is left are servers that nobody asks any more
        self._end_announcers()
        return self._code

    @property
    def _code(self) -> int:
        code = self._failures[0]["code"] if self._failures else 0
        assert isinstance(code, int), "codes are told as they are"
        return code

    def _is_awaited(self) -> bool:
        """Whether anything that runs still matters."""
        is_training = any(each.local_rank is not None for each in self._running.values())
        return is_training or (not self.is_stopped and not self._failures and is_needed(self._cluster))

    def _start(self, local_rank: int | None, *, restarts: int = 0) -> None:
        names = ("stdout", "stderr") if self._tags else ("both",)
        pipes = [os.pipe() for _ in names]
        pid = os.fork()
        if pid == 0:
            self._leave([writer for _, writer in pipes])
            self._become(local_rank, restarts)
        tail = bytearray()
        streams = []
        for name, (reader, writer) in zip(names, pipes, strict=True):
            os.close(writer)
            streams.append(Stream(reader, prefix=self._prefix(local_rank, name), tail=tail))
            self._streams[reader] = streams[-1]
            self._poll.register(reader, select.POLLIN)
        started = _Process(local_rank, pid=pid, streams=streams, restarts=restarts)
        self._running[started.pidfd] = started
        self._poll.register(started.pidfd, select.POLLIN)

    @property
    def _tags(self) -> bool:
        return self._cluster.kind is LaunchKind.MPI

    def _prefix(self, local_rank: int | None, name: str) -> bytes:
        """What stands before each line of a job by MPI, as on SageMaker."""
        if not self._tags or local_rank is None:
            return b""
        return f"[1,mpirank:{self._ranks[local_rank]},{self._cluster.host}]<{name}>:".encode()

    def _leave(self, outputs: list[int]) -> None:
        """Have nothing of the launcher any more, in a process that it has forked."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[-1], 2)
        keep = self._kept if self._kept >= 0 else _MOST_FILES
        if self._woken >= 0 and self._kept >= 0:  # the launcher has closed it long ago
            os.dup2(os.open(os.devnull, os.O_WRONLY), keep)
        os.closerange(3, keep)
        os.closerange(keep + 1, _MOST_FILES)

    def _become(self, local_rank: int | None, restarts: int) -> None:
        orders, cluster = self._orders, self._cluster
        if local_rank is None:
            environment = server_environment(cluster, self._environment, secret=orders.secret)
            execute(server_command(cluster, orders.python), environment)
        raise IsRank(self._rank_environment(local_rank, restarts))

    def _rank_environment(self, local_rank: int, restarts: int = 0) -> dict[str, str]:
        orders, cluster = self._orders, self._cluster
        threads = {"OMP_NUM_THREADS": str(orders.threads)} if cluster.here > 1 else {}
        own = {
            **rank_variables(cluster, local_rank, rank=self._ranks[local_rank], restarts=restarts),
            **server_variables(cluster, orders.secret),
        }
        return {**threads, **self._environment, **own}

    def _tell_ranks(self) -> None:
        ranks = {each.local_rank: each.pid for each in self._running.values() if each.local_rank is not None}
        report.add_ranks(self._orders.folder, {self._ranks[local]: pid for local, pid in ranks.items()})

    def _listen_to_signals(self) -> None:
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wakeup descriptor tells of it
        self._poll.register(self._woken, select.POLLIN)

    def _step(self) -> None:
        ready = [descriptor for descriptor, _ in self._poll.poll(self._pause_s() * 1000)]
        now = time.monotonic()
        for descriptor in ready:
            if descriptor in self._streams and not self._merger.take(self._streams[descriptor], now):
                self._forget(descriptor)
        if self._woken in ready:
            os.read(self._woken, 64)
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
        if any(stream.unended for stream in self._streams.values()):
            until = min(until, STALE_S)
        return max(0.0, min(until, _SERVER_PAUSE_S if self._cluster.has_server else 60.0))

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._streams[descriptor]
        os.close(descriptor)

    def _reap(self, process: _Process, now: float) -> None:
        at_us = time.time_ns() // 1000
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        self._poll.unregister(process.pidfd)
        os.close(process.pidfd)
        for stream in process.streams:
            if stream.reader in self._streams:  # what it started may hold it open and write on
                self._merger.drain(stream, now)
        is_wanted = self._kill_at != _NEVER or (self._is_one_of_many and self.is_stopped)
        if code == 0:
            self._announce(process)
        if code == 0 or is_wanted:
            return
        if self._may_restart(process):
            self._restart(process, code)
            return
        rank = None if process.local_rank is None else self._ranks[process.local_rank]
        self._failures.append(report.failure(rank, code=code, at_us=at_us, tail=process.tail))
        report.add_failure(self._orders.folder, self._failures[-1])
        self._term_at = min(self._term_at, now + SETTLE_S)

    def _announce(self, process: _Process) -> None:
        """Let all servers know of a worker that has ended well, which may not have told them: they wait for it."""
        if self._cluster.kind is not LaunchKind.PARAMETER_SERVER or process.local_rank is None:
            return
        pid = os.fork()
        if pid == 0:
            self._leave([os.open(os.devnull, os.O_WRONLY)])  # the log is the program's
            execute(announcement_command(self._orders.python), self._rank_environment(process.local_rank))
        self._announcers.append(pid)

    def _end_announcers(self) -> None:
        for pid in self._announcers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _may_restart(self, process: _Process) -> bool:
        is_rank = process.local_rank is not None and process.restarts < self._cluster.most_restarts
        return is_rank and not self.is_stopped and not self._failures

    def _restart(self, process: _Process, code: int) -> None:
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        rank = self._ranks[process.local_rank or 0]
        count = f"{process.restarts + 1} of {self._cluster.most_restarts}"
        self._merger.say(f"[trainyard] rank {rank} {ended}; it is started again, {count}.")
        self._start(process.local_rank, restarts=process.restarts + 1)
        self._tell_ranks()

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
                signal.pidfd_send_signal(process.pidfd, signal.SIGCONT)  # or one that is stopped would not learn of it


def execute(words: list[str], environment: dict[str, str]) -> NoReturn:
    """Become another program, or end this process and say why not."""
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        os.write(2, f"{words[0]} cannot be executed: {error.strerror}\n".encode())
        os._exit(127)


def end(code: int) -> NoReturn:
    """End this process as a rank ended: with its code, or by its signal."""
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
