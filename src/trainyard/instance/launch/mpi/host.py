"""The launcher of one host where a real mpirun starts the ranks."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from trainyard.instance.launch.boot import boot
from trainyard.instance.launch.launcher import GRACE_S
from trainyard.instance.launch.mpi import mpirun
from trainyard.instance.launch.mpi.links import has_other_than_loopback
from trainyard.instance.launch.mpi.remote import (
    VARIABLE,
    agent_script,
    connect,
    greeted,
    port_of,
    receive,
    send,
)
from trainyard.instance.launch.mpi.starter import OUTPUT
from trainyard.instance.launch.orders import LaunchOrders, MpiOrders, encode
from trainyard.instance.launch.output import STALE_S, Merger, Stream

_NEVER = float("inf")
_RETRY_S = 0.1  # between two tries to reach a host whose launcher is not there yet
_PAUSE_S = 60.0
_LOST = 1  # the exit code of a host that the first one has left without a word
_CREDENTIALS_BYTES = 12


def run_by_mpirun(orders: LaunchOrders, mpi: MpiOrders, *, package: str, program: list[str]) -> int | None:
    """Run the ranks of this host and return the exit code of it all; None when the mpirun that there is cannot do it.

    All hosts of a job find the same. A program that cannot do without has failed then.
    """
    try:
        version = _served_version(orders, mpi)
    except mpirun.NotServed as error:
        _say(f"[trainyard] {mpi.mpirun} is not used, because {error}.")
        return _refuse(mpi) if mpi.refusal else None
    words = _command(orders, mpi, version=version, package=package)
    starter = [orders.python, "-I", "-S", "-c", boot("mpi.starter"), package]
    host = _Host(orders)
    if orders.cluster.host != orders.cluster.hosts[0]:
        return host.serve()
    return host.lead([*words, *starter, *_aborting(program, orders, mpi)])


def _served_version(orders: LaunchOrders, mpi: MpiOrders) -> int:
    version = mpirun.version_of(mpi.mpirun)
    if version > 4 and len(orders.cluster.hosts) > 1 and mpi.interface == "lo" and not has_other_than_loopback():
        raise mpirun.NotServed(f"Open MPI {version} needs another network link than the loopback for several hosts")
    return version


def _refuse(mpi: MpiOrders) -> int:
    _say(mpi.refusal)
    with open(mpi.failure, "w", encoding="utf-8") as file:
        file.write(mpi.refusal)
    return 1


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _aborting(program: list[str], orders: LaunchOrders, mpi: MpiOrders) -> list[str]:
    """The program so that an exception in it ends all ranks, as SageMaker has it.

    Else mpi4py would wait at the end of that one for all others, which wait for it.
    """
    if not mpi.refusal or program[0] != orders.python:
        return program
    return [program[0], "-m", "mpi4py", *program[1:]]


def _command(orders: LaunchOrders, mpi: MpiOrders, *, version: int, package: str) -> list[str]:
    """All that stands before the program. The files that it names are looked for on every host."""
    hosts, agent = f"{orders.folder}/hosts", f"{orders.folder}/remote-start"
    with open(hosts, "w", encoding="utf-8") as file:
        file.write(mpirun.hosts_file(orders.cluster))
    with open(agent, "w", encoding="utf-8") as file:
        file.write(agent_script(orders, boot("mpi.remote"), package=package))
    os.chmod(agent, 0o700)
    return mpirun.command(
        mpi.mpirun,
        version,
        cluster=orders.cluster,
        interface=mpi.interface,
        options=mpi.options,
        hosts=hosts,
        agent=agent,
    )


class _Host:
    """Runs mpirun, or the daemon that it asks for; takes the lines of the ranks here, and passes SIGTERM on to them."""

    def __init__(self, orders: LaunchOrders) -> None:
        self._orders = orders
        self._cluster = orders.cluster
        self._merger = Merger(1)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._streams: dict[int, Stream] = {}
        self._starters: dict[int, int] = {}  # descriptors of their processes, by those of their lines
        self._child: subprocess.Popen[bytes] | None = None
        self._on_child_end: Callable[[int], None] = lambda _: None
        self._code: int | None = None  # of mpirun, once it has ended
        self._kill_at = _NEVER
        self._is_stopped = self._is_over = False
        self._open: list[socket.socket] = []  # or they would be closed
        self._take_signals()
        self._take_ranks()

    def lead(self, words: list[str]) -> int:
        """Run mpirun, once the launchers of all other hosts are there, and tell them of its end."""
        followers: list[socket.socket] = []
        for host in self._cluster.hosts[1:]:
            while (connection := self._reach(host)) is None:
                self._step(_RETRY_S)
                if self._is_stopped:
                    return -signal.SIGTERM
            followers.append(connection)
        self._start(words, on_end=self._finish)
        code = self._run()
        for connection in followers:
            _tell_end(connection, code)
        return code

    def serve(self) -> int:
        """Run what mpirun asks for, until the first host tells that mpirun has ended, or is no more."""
        address = self._cluster.addresses[self._cluster.host], port_of(self._cluster, self._cluster.host)
        listener = socket.create_server(address)
        self._watch(listener.fileno(), lambda: self._accept(listener))
        return self._run()

    def _run(self) -> int:
        while self._code is None or (not self._is_over and (self._streams or self._child is not None)):
            self._step(_PAUSE_S)
        return self._code

    def _reach(self, host: str) -> socket.socket | None:
        try:
            return connect(self._orders, host, {"hold": True})
        except OSError:
            return None  # it is not there yet; should it never come, the whole job is ended

    def _step(self, pause_s: float) -> None:
        until = self._kill_at - time.monotonic()
        if any(stream.unended for stream in self._streams.values()):
            until = min(until, STALE_S)
        ready = [descriptor for descriptor, _ in self._poll.poll(max(0.0, min(until, pause_s)) * 1000)]
        for descriptor in ready:
            if descriptor in self._handlers:
                self._handlers[descriptor]()
        now = time.monotonic()
        for stream in self._streams.values():
            self._merger.flush_stale(stream, now)
        self._is_over = now >= self._kill_at  # what is left then ends with the sandbox

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        del self._handlers[descriptor]
        self._poll.unregister(descriptor)

    def _take_signals(self) -> None:
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the wakeup descriptor tells of it

        def stop() -> None:
            os.read(woken, 64)
            self._is_stopped = True
            self._stop()

        self._watch(woken, stop)

    def _stop(self) -> None:
        """Pass SIGTERM on to the ranks here. Where there are none yet, mpirun or its daemon learns of it.

        A host that nobody has reached yet has nothing to wait for.
        """
        for starter in self._starters.values():
            _stop(starter)
        if self._child is not None and not self._starters:
            self._child.terminate()
        if self._child is None and not self._open:
            self._finish(-signal.SIGTERM)

    def _take_ranks(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{self._orders.folder}/{OUTPUT}")
        listener.listen(self._cluster.here)
        self._watch(listener.fileno(), lambda: self._take_rank(listener))

    def _take_rank(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        starter = _pidfd(int.from_bytes(peer[:4], sys.byteorder))
        reader = connection.detach()
        if starter is not None:
            self._starters[reader] = starter
        self._take_lines(reader)
        if starter is not None and self._is_stopped:
            _stop(starter)

    def _take_lines(self, reader: int) -> None:
        stream = self._streams[reader] = Stream(reader, prefix=b"", tail=bytearray())

        def take() -> None:
            if self._merger.take(stream, time.monotonic()):
                return
            self._forget(reader)
            del self._streams[reader]
            os.close(reader)
            if reader in self._starters:
                os.close(self._starters.pop(reader))

        self._watch(reader, take)

    def _start(self, words: list[str], *, on_end: Callable[[int], None]) -> None:
        """Start what all ranks of this host come of."""
        environment = {**os.environ, VARIABLE: encode(self._orders)}
        reader, writer = os.pipe()
        self._child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=environment, restore_signals=True
        )
        os.close(writer)
        self._on_child_end = on_end
        self._take_lines(reader)
        ended = os.pidfd_open(self._child.pid)
        self._watch(ended, lambda: self._reap(ended))

    def _reap(self, ended: int) -> None:
        assert self._child is not None, "only a child that runs is watched"
        code = self._child.wait()
        self._forget(ended)
        os.close(ended)
        self._child = None
        self._on_child_end(code)

    def _finish(self, code: int) -> None:
        """Take what the ranks here have still to say, for a while."""
        if self._code is None:
            self._code = code
            self._kill_at = time.monotonic() + GRACE_S

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            wish = greeted(connection, self._orders.secret)
        except OSError:
            connection.close()
            return
        self._open.append(connection)
        if "start" in wish and self._child is None:
            self._start(["/bin/sh", "-c", str(wish["start"])], on_end=lambda code: _tell(connection, {"code": code}))
        elif "hold" in wish:
            self._watch(connection.fileno(), lambda: self._end_with_first(connection))
        else:
            connection.close()

    def _end_with_first(self, connection: socket.socket) -> None:
        self._forget(connection.fileno())
        try:
            code = int(receive(connection)["end"])
        except (OSError, KeyError, ValueError):
            self._merger.say(f"[trainyard] {self._cluster.hosts[0]} has gone, and with it all that mpirun has started.")
            code = _LOST
        self._finish(code)


def _tell(connection: socket.socket, message: dict[str, Any]) -> None:
    try:
        send(connection, message)
    except OSError:
        return  # whoever wanted to know is no more


def _tell_end(connection: socket.socket, code: int) -> None:
    _tell(connection, {"end": code})
    connection.close()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # it has ended already


def _stop(starter: int) -> None:
    try:
        signal.pidfd_send_signal(starter, signal.SIGTERM)
        signal.pidfd_send_signal(starter, signal.SIGCONT)  # or one that is stopped would not learn of it
    except ProcessLookupError:
        return
