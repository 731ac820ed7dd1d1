"""The quick birth of agents: forked from a process that has their code loaded, which `nurse.py` is.

Starting a Python and loading the agent into it takes most of the time between a create call and the first line of a
script: 110 of 170 ms, measured in November 2026; a fork takes 3.
"""

import json
import logging
import socket
import subprocess
import threading
import time
import weakref

from trainyard.engines.local.births import Birth, agent_environment, reap
from trainyard.engines.local.code import AgentCode
from trainyard.engines.local.nurse import READY
from trainyard.engines.local.processes import Deadline, kill, wait_for_end
from trainyard.foundation.home import process_start
from trainyard.link.presence import Presence

log = logging.getLogger(__name__)

ANSWER_S = 2.0  # a nurse that takes longer for a fork is given up
AGAIN_S = 10.0  # until another is started after one was given up

_END_S = 5.0
_ROOM = " " * 512


class NurseryLost(Exception):
    """A nurse was asked for an agent, did not answer, and is dead now; only the agent's lock tells whether it is born.

    Nothing of the request is under way any more.
    """


class Nursery:
    """Has one nurse, started when it is first needed or before, by `start`. It ends with this process or object.

    Safe to share between threads. Births wait for each other for as long as a fork takes.
    """

    def __init__(self, code: AgentCode, *, python: str) -> None:
        self._code = code
        self._python = python
        self._lock = threading.Lock()
        self._nurse: _Nurse | None = None
        self._not_before = 0.0

    def start(self) -> None:
        """Begin to start a nurse, unless there is one."""
        with self._lock:
            self._ensure()

    def bear(self, birth: Birth) -> int | None:
        """The pid of the agent, which has the descriptors; None when there is no nurse yet, or it cannot fork.

        Nobody waits for one that is getting ready. NurseryLost when it is not known whether there is an agent now.
        """
        with self._lock:
            nurse = self._ensure()
            if nurse is None:
                return None
            try:
                return nurse.bear(birth) if nurse.is_ready() else None
            except OSError as error:
                log.warning("nursery lost", extra={"pid": nurse.pid, "why": str(error)})
                self._nurse, self._not_before = None, time.monotonic() + AGAIN_S
                nurse.end()
                raise NurseryLost from error

    def _ensure(self) -> "_Nurse | None":
        if self._nurse is None and time.monotonic() >= self._not_before:
            try:
                self._nurse = _Nurse(self._code, python=self._python)
            except OSError as error:  # then it will not start an agent either, and that is told where it matters
                log.warning("nursery cannot be started", extra={"why": str(error)})
                self._not_before = time.monotonic() + AGAIN_S
        return self._nurse


class _Nurse:
    """One nurse and the socket to it. Every OSError means that it is of no use any more."""

    def __init__(self, code: AgentCode, *, python: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        weakref.finalize(self, self._socket.close)
        self._socket.setblocking(False)
        self._is_ready = False
        with theirs:
            process = subprocess.Popen(
                [python, "-I", str(code.nurse), str(theirs.fileno()), _ROOM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=agent_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._presence = Presence(process.pid, process_start(process.pid) or "")
        reap(process)

    @property
    def pid(self) -> int:
        return self._presence.pid

    def is_ready(self) -> bool:
        if not self._is_ready:
            try:
                said = self._socket.recv(len(READY))
            except BlockingIOError:
                return False
            if said != READY:
                raise ConnectionResetError("it ended before it was ready")
            self._socket.settimeout(ANSWER_S)
            self._is_ready = True
        return True

    def bear(self, birth: Birth) -> int | None:
        order = json.dumps({"folder": str(birth.folder), "environment": dict(birth.environment)})
        socket.send_fds(self._socket, [order.encode()], [birth.held, birth.using, birth.log])
        answer = self._socket.recv(32)
        if not answer:
            raise ConnectionResetError("it ended before it answered")
        return int(answer) or None

    def end(self) -> None:
        """Make sure that it does nothing any more; OSError when that cannot be proven."""
        self._socket.close()
        kill(self._presence)
        if not wait_for_end(self._presence, Deadline(_END_S)):
            raise OSError(f"process {self.pid}, which forks agents, does not end")
