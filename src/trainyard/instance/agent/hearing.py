"""Hears what the processes of a program tell by the socket under its /opt/ml, which `link/told.py` describes.

All of it comes from the program, so it is taken for no more than a word of it: lines that are none of ours are left
out, one that never ends is cut off with its connection, and nobody is read for so long that the agent would lose time.
"""

import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.layout import Owner
from trainyard.link.folders import InstanceFolder
from trainyard.link.told import MOST_BYTES, SOCKET, Told, decode

_BACKLOG = 256
_MOST_CONNECTIONS = 512
_READ_BYTES = 1 << 18  # of one connection in one go
_AT_ONCE = 16  # connections that are read before the next ones get their turn
_LONGEST_S = 0.1  # in one go: whoever hears has stops to carry out as well
_LAST_WORDS_S = 10.0
_MODE = 0o600


class Hearing:
    """Listens from the moment it is made. `fileno` can be polled: there is something to hear when it is readable."""

    def __init__(self, folder: InstanceFolder, owner: Owner) -> None:
        self._listener = _listen(folder, owner)
        self._connections: dict[int, _Connection] = {}
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def hear(self) -> Iterator[Told]:
        """What was told since, without waiting for more; of a flood as much as there is time for."""
        deadline = time.monotonic() + _LONGEST_S
        while ready := self._poll.poll(0, _AT_ONCE):
            for descriptor, _ in ready:
                if descriptor in self._connections:
                    yield from self._read(self._connections[descriptor])
                else:
                    self._accept()
            if time.monotonic() > deadline:
                return

    def hear_out(self) -> Iterator[Told]:
        """What is left when nobody can tell anything any more, for a while."""
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._poll.poll(0) and time.monotonic() < deadline:
            yield from self.hear()

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
                if len(self._connections) >= _MOST_CONNECTIONS:
                    connection.close()
                    continue
                connection.setblocking(False)
                self._connections[connection.fileno()] = _Connection(connection)
                self._poll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, connection: "_Connection") -> Iterator[Told]:
        yield from (told for line in connection.lines() if (told := decode(line)) is not None)
        if connection.has_ended:
            self._poll.unregister(connection.fileno())
            del self._connections[connection.fileno()]
            connection.close()


class _Connection:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._rest = b""
        self.has_ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def lines(self) -> list[bytes]:
        """Those that are whole by now."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.has_ended = not data or len(self._rest) > MOST_BYTES
        return lines

    def close(self) -> None:
        self._socket.close()


def _listen(folder: InstanceFolder, owner: Owner) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with ConfinedFolder.open(folder.ml) as ml:
        ml.bind_socket(listener, SOCKET, owner=owner.uid, mode=_MODE)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
