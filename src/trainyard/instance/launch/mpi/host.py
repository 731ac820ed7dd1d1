"""The launcher of one host when a real mpirun starts the ranks."""

import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from trainyard.foundation.interpreter import boot_code
from trainyard.instance.launch.launcher import GRACE_S
from trainyard.instance.launch.mpi import mpirun
from trainyard.instance.launch.mpi.remote import (
    SPEC_VARIABLE,
    accept_request,
    connect,
    launcher_port,
    receive,
    remote_shell_script,
    send,
)
from trainyard.instance.launch.mpi.starter import OUTPUT
from trainyard.instance.launch.output import STALE_S, OutputMerger, OutputStream
from trainyard.instance.launch.spec import LauncherSpec, MpirunSpec, encode_spec

_NEVER = float("inf")
# Between two attempts to reach a host whose launcher is not up yet.
_RETRY_S = 0.1
_PAUSE_S = 60.0
# For a host whose connection to the first host broke.
_LOST_EXIT_CODE = 1
_CREDENTIALS_BYTES = 12
_SIOCGIFADDR = 0x8915


def run_with_mpirun(spec: LauncherSpec, mpi: MpirunSpec, *, package: str, program: list[str]) -> int | None:
    """Run the ranks of this host and return the exit code of mpirun; None if this mpirun cannot run them.

    All hosts of a job come to the same conclusion. A program that needs mpirun then fails.
    """
    try:
        version = _require_version(spec, mpi)
    except mpirun.UnsupportedMpirun as error:
        _write_line(f"[trainyard] Not using {mpi.mpirun}, because {error}.")
        return _refuse(mpi) if mpi.refusal else None
    words = _command(spec, mpi, version=version, package=package)
    starter = [spec.python, "-I", "-S", "-c", boot_code("trainyard.instance.launch.mpi.starter"), package]
    host = _HostLauncher(spec)
    if spec.cluster.host != spec.cluster.hosts[0]:
        return host.run_other()
    return host.run_first([*words, *starter, *_with_abort(program, spec, mpi)])


def _require_version(spec: LauncherSpec, mpi: MpirunSpec) -> int:
    version = mpirun.read_version(mpi.mpirun)
    if version > 4 and len(spec.cluster.hosts) > 1 and mpi.interface == "lo" and not _has_link_besides_loopback():
        raise mpirun.UnsupportedMpirun(f"Open MPI {version} needs a network link besides loopback for several hosts")
    return version


def _has_link_besides_loopback() -> bool:
    """Return whether a link other than loopback has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return any(_has_address(probe, name) for _, name in socket.if_nameindex() if name != "lo")


def _has_address(probe: socket.socket, name: str) -> bool:
    try:
        fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return False
    return True


def _refuse(mpi: MpirunSpec) -> int:
    _write_line(mpi.refusal)
    with open(mpi.failure, "w", encoding="utf-8") as file:
        file.write(mpi.refusal)
    return 1


def _write_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _with_abort(program: list[str], spec: LauncherSpec, mpi: MpirunSpec) -> list[str]:
    """Return the program run so that an exception in it ends all ranks, as on SageMaker.

    Otherwise mpi4py would wait at its end for the other ranks, which wait for it.
    """
    if not mpi.refusal or program[0] != spec.python:
        return program
    return [program[0], "-m", "mpi4py", *program[1:]]


def _command(spec: LauncherSpec, mpi: MpirunSpec, *, version: int, package: str) -> list[str]:
    """Return the command line up to the program, and write its files, which must exist on every host."""
    hosts, agent = f"{spec.folder}/hosts", f"{spec.folder}/remote-start"
    with open(hosts, "w", encoding="utf-8") as file:
        file.write(mpirun.hosts_file(spec.cluster))
    with open(agent, "w", encoding="utf-8") as file:
        file.write(remote_shell_script(spec, boot_code("trainyard.instance.launch.mpi.remote"), package=package))
    os.chmod(agent, 0o700)
    return mpirun.mpirun_command(
        mpi.mpirun,
        version,
        cluster=spec.cluster,
        interface=mpi.interface,
        options=mpi.options,
        hosts=hosts,
        agent=agent,
    )


class _HostLauncher:
    """Runs mpirun or the daemon that it asks for, collects the output of local ranks, and forwards SIGTERM to them."""

    def __init__(self, spec: LauncherSpec) -> None:
        self._spec = spec
        self._cluster = spec.cluster
        self._merger = OutputMerger(1)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._streams: dict[int, OutputStream] = {}
        # Pidfds by the descriptors of their output.
        self._starters: dict[int, int] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._on_child_end: Callable[[int], None] = lambda _: None
        # The exit code of mpirun once it has ended.
        self._code: int | None = None
        self._kill_at = _NEVER
        self._is_stopped = self._is_over = False
        # Keeps the connections from being garbage collected.
        self._open: list[socket.socket] = []
        self._watch_signals()
        self._listen_for_ranks()

    def run_first(self, words: list[str]) -> int:
        """Run mpirun once the launchers of all other hosts are up, and tell them when it ends."""
        followers: list[socket.socket] = []
        for host in self._cluster.hosts[1:]:
            while (connection := self._connect_to(host)) is None:
                self._step(_RETRY_S)
                if self._is_stopped:
                    return -signal.SIGTERM
            followers.append(connection)
        self._start(words, on_end=self._finish)
        code = self._run()
        for connection in followers:
            _send_end(connection, code)
        return code

    def run_other(self) -> int:
        """Run what mpirun asks for, until the first host says that mpirun has ended, or disappears."""
        address = self._cluster.addresses[self._cluster.host], launcher_port(self._cluster, self._cluster.host)
        listener = socket.create_server(address)
        self._watch(listener.fileno(), lambda: self._accept(listener))
        return self._run()

    def _run(self) -> int:
        while self._code is None or (not self._is_over and (self._streams or self._child is not None)):
            self._step(_PAUSE_S)
        return self._code

    def _connect_to(self, host: str) -> socket.socket | None:
        try:
            return connect(self._spec, host, {"hold": True})
        except OSError:
            # It is not up yet. If it never comes up, the whole job ends.
            return None

    def _step(self, pause_s: float) -> None:
        until = self._kill_at - time.monotonic()
        if any(stream.partial_line for stream in self._streams.values()):
            until = min(until, STALE_S)
        ready = [descriptor for descriptor, _ in self._poll.poll(max(0.0, min(until, pause_s)) * 1000)]
        for descriptor in ready:
            if descriptor in self._handlers:
                self._handlers[descriptor]()
        now = time.monotonic()
        for stream in self._streams.values():
            self._merger.flush_stale(stream, now)
        # Whatever is left then ends with the sandbox.
        self._is_over = now >= self._kill_at

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _unwatch(self, descriptor: int) -> None:
        del self._handlers[descriptor]
        self._poll.unregister(descriptor)

    def _watch_signals(self) -> None:
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        # The signal arrives through the wakeup descriptor.
        signal.signal(signal.SIGTERM, lambda *_: None)

        def stop() -> None:
            os.read(woken, 64)
            self._is_stopped = True
            self._stop_ranks()

        self._watch(woken, stop)

    def _stop_ranks(self) -> None:
        """Forward SIGTERM to the local ranks, or to mpirun or its daemon if there are none yet.

        A host that nobody has contacted yet has nothing to wait for.
        """
        for starter in self._starters.values():
            _terminate_starter(starter)
        if self._child is not None and not self._starters:
            self._child.terminate()
        if self._child is None and not self._open:
            self._finish(-signal.SIGTERM)

    def _listen_for_ranks(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{self._spec.folder}/{OUTPUT}")
        listener.listen(self._cluster.local_size)
        self._watch(listener.fileno(), lambda: self._accept_rank(listener))

    def _accept_rank(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        starter = _pidfd(int.from_bytes(peer[:4], sys.byteorder))
        reader = connection.detach()
        if starter is not None:
            self._starters[reader] = starter
        self._forward_lines(reader)
        if starter is not None and self._is_stopped:
            _terminate_starter(starter)

    def _forward_lines(self, reader: int) -> None:
        stream = self._streams[reader] = OutputStream(reader, prefix=b"", tail=bytearray())

        def forward() -> None:
            if self._merger.forward(stream, time.monotonic()):
                return
            self._unwatch(reader)
            del self._streams[reader]
            os.close(reader)
            if reader in self._starters:
                os.close(self._starters.pop(reader))

        self._watch(reader, forward)

    def _start(self, words: list[str], *, on_end: Callable[[int], None]) -> None:
        """Start mpirun or its daemon, the parent of all local ranks."""
        environment = {**os.environ, SPEC_VARIABLE: encode_spec(self._spec)}
        reader, writer = os.pipe()
        self._child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=environment, restore_signals=True
        )
        os.close(writer)
        self._on_child_end = on_end
        self._forward_lines(reader)
        ended = os.pidfd_open(self._child.pid)
        self._watch(ended, lambda: self._reap(ended))

    def _reap(self, ended: int) -> None:
        assert self._child is not None, "only a child that runs is watched"
        code = self._child.wait()
        self._unwatch(ended)
        os.close(ended)
        self._child = None
        self._on_child_end(code)

    def _finish(self, code: int) -> None:
        """Note that mpirun has ended, and wait a while for the last output of the local ranks."""
        if self._code is None:
            self._code = code
            self._kill_at = time.monotonic() + GRACE_S

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            request = accept_request(connection, self._spec.secret)
        except OSError:
            connection.close()
            return
        self._open.append(connection)
        if "start" in request and self._child is None:
            self._start(
                ["/bin/sh", "-c", str(request["start"])], on_end=lambda code: _send_or_drop(connection, {"code": code})
            )
        elif "hold" in request:
            self._watch(connection.fileno(), lambda: self._end_with_first(connection))
        else:
            connection.close()

    def _end_with_first(self, connection: socket.socket) -> None:
        self._unwatch(connection.fileno())
        try:
            code = int(receive(connection)["end"])
        except (OSError, KeyError, ValueError):
            self._merger.write_line(
                f"[trainyard] Lost {self._cluster.hosts[0]}, and with it everything that mpirun started."
            )
            code = _LOST_EXIT_CODE
        self._finish(code)


def _send_or_drop(connection: socket.socket, message: dict[str, Any]) -> None:
    try:
        send(connection, message)
    except OSError:
        # The other side is gone.
        return


def _send_end(connection: socket.socket, code: int) -> None:
    _send_or_drop(connection, {"end": code})
    connection.close()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        # It has already ended.
        return None


def _terminate_starter(starter: int) -> None:
    try:
        signal.pidfd_send_signal(starter, signal.SIGTERM)
        # A stopped process would not see the signal otherwise.
        signal.pidfd_send_signal(starter, signal.SIGCONT)
    except ProcessLookupError:
        return
