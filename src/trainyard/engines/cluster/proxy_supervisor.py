"""Keeps a cluster proxy running: on a thread of this process, or in a process of its own that ends with this one.

The driver of some clusters dies with the cluster, or takes its process down, so it must not run in the yard's process.
A proxy keeps its state in files, so one that ended is simply started again.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trainyard.engines.cluster.proxy import ClusterProxy
from trainyard.engines.cluster.proxy_rpc import ProxyClient, serve
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FILE

log = logging.getLogger(__name__)

# How long to wait before a proxy that ended is started again; doubled each time.
_FIRST_RESTART_S, _MAX_RESTART_S = 0.1, 10.0
# A proxy that ran this long did not end for the same reason as the one before.
_STABLE_S = 30.0
_PING_INTERVAL_S = 5.0
# A proxy that does not answer a ping within this time is ended.
_PING_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0
MAX_LOG_BYTES = 10 << 20
_PR_SET_PDEATHSIG = 1

ProxyFactory = Callable[[], Awaitable[ClusterProxy]]


class RunningProxy(Protocol):
    def end(self) -> None:
        """End the proxy, and return when it does nothing any more."""
        ...


class ProxyLauncher(Protocol):
    """Starts a proxy that answers on its end of a socket pair. Raises OSError if it cannot be started."""

    def __call__(self, theirs: socket.socket) -> RunningProxy: ...


class ProxySupervisor:
    """Keeps one proxy running, from `start` to `close`. Safe to share between threads."""

    def __init__(self, launch: ProxyLauncher) -> None:
        self._launch = launch
        self._client: ProxyClient | None = None
        self._has_changed = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start supervising, unless that was done before."""
        with self._has_changed:
            if self._thread is None and not self._is_closing:
                # The thread must live as long as its proxies: PDEATHSIG ends a process with the thread that started it.
                self._thread = threading.Thread(target=self._supervise, name="proxy-supervisor", daemon=True)
                self._thread.start()

    @property
    def client(self) -> ProxyClient:
        """The client of the running proxy. Raises Unavailable while there is none."""
        client = self._client
        if client is None:
            raise Unavailable("The proxy between this yard and its cluster is not running; it is being started.")
        return client

    def wait(self, timeout_s: float) -> bool:
        """Wait for a running proxy. Return False if there is none in time."""
        with self._has_changed:
            return self._has_changed.wait_for(lambda: self._client is not None, timeout_s)

    def close(self) -> None:
        with self._has_changed:
            self._is_closing = True
            client, thread = self._client, self._thread
            self._has_changed.notify_all()
        if client is not None:
            client.close()
        if thread is not None:
            thread.join(2 * _END_TIMEOUT_S)

    def _supervise(self) -> None:
        pause_s = _FIRST_RESTART_S
        while not self._is_closing:
            began = time.monotonic()
            try:
                self._run_once()
            except Exception:
                log.exception("the cluster proxy cannot be started")
            if time.monotonic() - began > _STABLE_S:
                pause_s = _FIRST_RESTART_S
            with self._has_changed:
                self._has_changed.wait_for(lambda: self._is_closing, pause_s)
            pause_s = min(2 * pause_s, _MAX_RESTART_S)

    def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            running = self._launch(theirs)
        except OSError:
            ours.close()
            theirs.close()
            raise
        client = ProxyClient(ours)
        self._set_client(client)
        try:
            while not self._is_closing and not client.wait_until_gone(_PING_INTERVAL_S):
                client.ping(timeout_s=_PING_TIMEOUT_S)
        except Unavailable as error:
            log.warning("the cluster proxy does not answer", extra={"why": error.message})
        finally:
            self._set_client(None)
            client.close()
            running.end()
        if not self._is_closing:
            log.warning("the cluster proxy has ended and is started again")

    def _set_client(self, client: ProxyClient | None) -> None:
        with self._has_changed:
            self._client = client
            self._has_changed.notify_all()


class ThreadLauncher:
    """Runs a proxy on a thread of this process."""

    def __init__(self, make: ProxyFactory) -> None:
        self._make = make

    def __call__(self, theirs: socket.socket) -> RunningProxy:
        return _RunningThread(theirs, self._make)


class ProcessLauncher:
    """Runs a proxy in a process: the last argument of the command is the number of its descriptor for `run_proxy`.

    Its output goes to `output`. A large file is renamed first; one such file is kept.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], output: Path) -> None:
        self._command = command
        self._environment = environment
        self._output = output

    def __call__(self, theirs: socket.socket) -> RunningProxy:
        if self._output.exists() and self._output.stat().st_size > MAX_LOG_BYTES:
            self._output.replace(f"{self._output}.1")
        descriptor = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
        with theirs, os.fdopen(descriptor, "ab") as output:
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=self._environment,
                pass_fds=(theirs.fileno(),),
            )
        log.info("cluster proxy started", extra={"pid": process.pid})
        return _RunningProcess(process)


def run_proxy(descriptor: int, make: ProxyFactory) -> None:
    """Run a proxy in this process, until the process that started it is gone."""
    # Even if this process stops reading its socket: the loop may hang in a library.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    asyncio.run(_run(connection, make))


async def _run(connection: socket.socket, make: ProxyFactory) -> None:
    proxy = await make()
    await proxy.open()
    try:
        await serve(connection, proxy)
    finally:
        await proxy.close()


class _RunningThread:
    def __init__(self, connection: socket.socket, make: ProxyFactory) -> None:
        self._connection = connection
        self._thread = threading.Thread(target=self._run, args=(make,), name="cluster-proxy", daemon=True)
        self._thread.start()

    def _run(self, make: ProxyFactory) -> None:
        try:
            asyncio.run(_run(self._connection, make))
        except Exception:
            log.exception("the cluster proxy has failed")
        finally:
            self._connection.close()

    def end(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_END_TIMEOUT_S)


class _RunningProcess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def end(self) -> None:
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
