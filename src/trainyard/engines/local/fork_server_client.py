"""The engine's end of the fork server (`fork_server.py`), the fast way to start agents.

Starting a Python and importing the agent takes most of the time between a create call and the first line of a script:
110 of 170 ms, measured in November 2026. A fork takes 3 ms.
"""

import json
import logging
import socket
import subprocess
import threading
import time
import weakref

from trainyard.engines.local.agent_launch import AgentLaunch, agent_environment, reap_in_background
from trainyard.engines.local.code import AgentCode
from trainyard.engines.local.fork_server import READY
from trainyard.engines.local.processes import Deadline, kill, wait_for_end
from trainyard.foundation.home import process_start
from trainyard.link.agent_process import ProcessIdentity

log = logging.getLogger(__name__)

# A fork server that takes longer for one fork is killed.
FORK_TIMEOUT_S = 2.0
# How long to wait after that before starting another.
RESTART_DELAY_S = 10.0

_END_TIMEOUT_S = 5.0
_COMMAND_LINE_PADDING = " " * 512


class ForkServerLost(Exception):
    """The fork server did not answer a request for an agent, and is dead now.

    Only the agent's lock shows whether the agent was started. Nothing of the request is pending any more.
    """


class ForkServerClient:
    """Starts a fork server, at `start` or when first needed, and asks it for agents. It ends with this object.

    Safe to share between threads. Requests wait for each other for as long as a fork takes.
    """

    def __init__(self, code: AgentCode, *, python: str) -> None:
        self._code = code
        self._python = python
        self._lock = threading.Lock()
        self._server: _ForkServerProcess | None = None
        self._not_before = 0.0

    def start(self) -> None:
        """Begin to start a fork server, unless there is one."""
        with self._lock:
            self._ensure()

    def fork_agent(self, launch: AgentLaunch) -> int | None:
        """Return the pid of a new agent, or None if the fork server is not ready or cannot fork.

        Never waits for the fork server to get ready. Raises ForkServerLost if the agent may or may not have started.
        """
        with self._lock:
            server = self._ensure()
            if server is None:
                return None
            try:
                return server.fork_agent(launch) if server.is_ready() else None
            except OSError as error:
                log.warning("fork server lost", extra={"pid": server.pid, "why": str(error)})
                self._server, self._not_before = None, time.monotonic() + RESTART_DELAY_S
                server.end()
                raise ForkServerLost from error

    def _ensure(self) -> "_ForkServerProcess | None":
        if self._server is None and time.monotonic() >= self._not_before:
            try:
                self._server = _ForkServerProcess(self._code, python=self._python)
            except OSError as error:
                # Starting the agent will fail as well, and that error reaches the caller.
                log.warning("fork server cannot be started", extra={"why": str(error)})
                self._not_before = time.monotonic() + RESTART_DELAY_S
        return self._server


class _ForkServerProcess:
    """One fork server and the socket to it. After any OSError it is of no more use."""

    def __init__(self, code: AgentCode, *, python: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        weakref.finalize(self, self._socket.close)
        self._socket.setblocking(False)
        self._is_ready = False
        with theirs:
            process = subprocess.Popen(
                [python, "-I", str(code.fork_server), str(theirs.fileno()), _COMMAND_LINE_PADDING],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=agent_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._presence = ProcessIdentity(process.pid, process_start(process.pid) or "")
        reap_in_background(process)

    @property
    def pid(self) -> int:
        return self._presence.pid

    def is_ready(self) -> bool:
        if not self._is_ready:
            try:
                message = self._socket.recv(len(READY))
            except BlockingIOError:
                return False
            if message != READY:
                raise ConnectionResetError("it ended before it was ready")
            self._socket.settimeout(FORK_TIMEOUT_S)
            self._is_ready = True
        return True

    def fork_agent(self, launch: AgentLaunch) -> int | None:
        request = json.dumps({"folder": str(launch.folder), "environment": dict(launch.environment)})
        socket.send_fds(
            self._socket, [request.encode()], [launch.instance_lock, launch.code_lock, launch.log_descriptor]
        )
        answer = self._socket.recv(32)
        if not answer:
            raise ConnectionResetError("it ended before it answered")
        return int(answer) or None

    def end(self) -> None:
        """Kill it and make sure that it is dead. Raises OSError if that cannot be proven."""
        self._socket.close()
        kill(self._presence)
        if not wait_for_end(self._presence, Deadline(_END_TIMEOUT_S)):
            raise OSError(f"the fork server (process {self.pid}) does not end")
