"""The server side of the event socket below the program's /opt/ml; see `link/event_protocol.py`.

Everything comes from the program, so nothing is trusted: invalid lines are ignored, a connection whose line never ends
is closed, and reading is limited in time so that a flood of events cannot delay the agent.
"""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.layout import ProgramUser
from trainyard.link.event_protocol import MAX_EVENT_BYTES, SOCKET, AgentEvent, decode_event
from trainyard.link.folders import InstanceFolder

_BACKLOG = 256
_MAX_CONNECTIONS = 512
_READ_BYTES = 1 << 18  # per connection and read
_CONNECTIONS_PER_POLL = 16  # connections read per poll
_READ_LIMIT_S = 0.1  # per call: the agent must also react to stop requests
_DRAIN_LIMIT_S = 10.0
_MODE = 0o600


class EventServer:
    """Listens for events as soon as it is created. Poll `fileno`: it is readable when events are waiting."""

    def __init__(self, folder: InstanceFolder, owner: ProgramUser) -> None:
        self._listener = _listen(folder, owner)
        self._connections: dict[int, _EventConnection] = {}
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def read_events(self) -> Iterator[AgentEvent]:
        """Yield the events received so far without waiting for more; a flood is cut off by a time limit."""
        deadline = time.monotonic() + _READ_LIMIT_S
        while ready := self._poll.poll(0, _CONNECTIONS_PER_POLL):
            for descriptor, _ in ready:
                if descriptor in self._connections:
                    yield from self._read_connection(self._connections[descriptor])
                else:
                    self._accept()
            if time.monotonic() > deadline:
                return

    def drain(self) -> Iterator[AgentEvent]:
        """Yield the remaining events after the program has ended, for a limited time."""
        deadline = time.monotonic() + _DRAIN_LIMIT_S
        while self._poll.poll(0) and time.monotonic() < deadline:
            yield from self.read_events()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._poll.close()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            for _ in range(_BACKLOG):
                connection, _ = self._listener.accept()
                if len(self._connections) >= _MAX_CONNECTIONS:
                    connection.close()
                    continue
                connection.setblocking(False)
                self._connections[connection.fileno()] = _EventConnection(connection)
                self._poll.register(connection.fileno(), select.EPOLLIN)

    def _read_connection(self, connection: "_EventConnection") -> Iterator[AgentEvent]:
        yield from (event for line in connection.lines() if (event := decode_event(line)) is not None)
        if connection.has_ended:
            self._poll.unregister(connection.fileno())
            del self._connections[connection.fileno()]
            connection.close()


class _EventConnection:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._partial_line = b""
        self.has_ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def lines(self) -> list[bytes]:
        """Return the lines that are complete so far."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        self.has_ended = not data or len(self._partial_line) > MAX_EVENT_BYTES
        return lines

    def close(self) -> None:
        self._socket.close()


def _listen(folder: InstanceFolder, owner: ProgramUser) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with ConfinedFolder.open(folder.ml) as ml:
            ml.bind_socket(listener, SOCKET, owner=owner.uid, mode=_MODE)
    except OSError:
        listener.close()
        raise
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
