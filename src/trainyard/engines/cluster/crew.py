"""Keeps a ferry running: on a thread of this process, or as a process of its own that ends with this one.

A driver of some clusters dies with them, or takes its process down, so that it must not be the yard's. What a ferry has
to remember lies in files, and one that ended is simply started again.
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

from trainyard.engines.cluster.calls import Caller, serve
from trainyard.engines.cluster.ferry import Ferry
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FILE

log = logging.getLogger(__name__)

_SOONEST_S, _LATEST_S = 0.1, 10.0  # until a ferry that ended is started again; the longer the more often it ended
_STEADY_S = 30.0  # one that ran for so long has not ended for what ended the one before
_ASKED_EVERY_S = 5.0  # whether it still answers
_HUNG_S = 60.0  # without an answer, after which it is ended
_END_S = 5.0
LARGE_BYTES = 10 << 20
_PR_SET_PDEATHSIG = 1

MakeFerry = Callable[[], Awaitable[Ferry]]


class Running(Protocol):
    def end(self) -> None:
        """Make sure that the ferry does nothing any more."""
        ...


class Launch(Protocol):
    """Starts a ferry that answers on its end of a pair of sockets; OSError when it cannot be started."""

    def __call__(self, theirs: socket.socket) -> Running: ...


class Crew:
    """Keeps one ferry running, from `start` to `close`. Safe to share between threads."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._caller: Caller | None = None
        self._has_changed = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to keep a ferry, unless that was done."""
        with self._has_changed:
            if self._thread is None and not self._is_closing:
                # The thread must stay as long as its ferries: a process may be ended with the thread that started it.
                self._thread = threading.Thread(target=self._keep, name="ferry-crew", daemon=True)
                self._thread.start()

    @property
    def caller(self) -> Caller:
        """Of the ferry that runs; Unavailable while there is none."""
        caller = self._caller
        if caller is None:
            raise Unavailable("What goes between this yard and its cluster does not run for now; it is being started.")
        return caller

    def wait(self, timeout_s: float) -> bool:
        """Whether there is a ferry before the time is over."""
        with self._has_changed:
            return self._has_changed.wait_for(lambda: self._caller is not None, timeout_s)

    def close(self) -> None:
        with self._has_changed:
            self._is_closing = True
            caller, thread = self._caller, self._thread
            self._has_changed.notify_all()
        if caller is not None:
            caller.close()
        if thread is not None:
            thread.join(2 * _END_S)

    def _keep(self) -> None:
        pause_s = _SOONEST_S
        while not self._is_closing:
            began = time.monotonic()
            try:
                self._run_once()
            except Exception:
                log.exception("a ferry cannot be started")
            if time.monotonic() - began > _STEADY_S:
                pause_s = _SOONEST_S
            with self._has_changed:
                self._has_changed.wait_for(lambda: self._is_closing, pause_s)
            pause_s = min(2 * pause_s, _LATEST_S)

    def _run_once(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            running = self._launch(theirs)
        except OSError:
            ours.close()
            theirs.close()
            raise
        caller = Caller(ours)
        self._set(caller)
        try:
            while not self._is_closing and not caller.wait_until_gone(_ASKED_EVERY_S):
                caller.ping(timeout_s=_HUNG_S)
        except Unavailable as error:
            log.warning("a ferry does not answer", extra={"why": error.message})
        finally:
            self._set(None)
            caller.close()
            running.end()
        if not self._is_closing:
            log.warning("a ferry has ended and is started again")

    def _set(self, caller: Caller | None) -> None:
        with self._has_changed:
            self._caller = caller
            self._has_changed.notify_all()


class OnThread:
    """Runs a ferry on a thread of this process."""

    def __init__(self, make: MakeFerry) -> None:
        self._make = make

    def __call__(self, theirs: socket.socket) -> Running:
        return _RunningThread(theirs, self._make)


class AsProcess:
    """Runs a ferry as a process: the command gets as its last argument the number of its descriptor for `run_ferry`.

    What it says goes to `output`, of which the one before is kept once it has become large.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], output: Path) -> None:
        self._command = command
        self._environment = environment
        self._output = output

    def __call__(self, theirs: socket.socket) -> Running:
        if self._output.exists() and self._output.stat().st_size > LARGE_BYTES:
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
        log.info("ferry started", extra={"pid": process.pid})
        return _RunningProcess(process)


def run_ferry(descriptor: int, make: MakeFerry) -> None:
    """Be the process of a ferry, until the one that started it is gone."""
    # Also while this one does not read: the loop may hang in a library.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    os.set_inheritable(descriptor, False)
    connection = socket.socket(fileno=descriptor)
    asyncio.run(_run(connection, make))


async def _run(connection: socket.socket, make: MakeFerry) -> None:
    ferry = await make()
    await ferry.open()
    try:
        await serve(connection, ferry)
    finally:
        await ferry.close()


class _RunningThread:
    def __init__(self, connection: socket.socket, make: MakeFerry) -> None:
        self._connection = connection
        self._thread = threading.Thread(target=self._run, args=(make,), name="ferry", daemon=True)
        self._thread.start()

    def _run(self, make: MakeFerry) -> None:
        try:
            asyncio.run(_run(self._connection, make))
        except Exception:
            log.exception("a ferry has failed")
        finally:
            self._connection.close()

    def end(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_END_S)


class _RunningProcess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def end(self) -> None:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
