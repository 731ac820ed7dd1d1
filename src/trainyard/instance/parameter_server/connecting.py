"""How a worker connects with a server. It needs no torch."""

import socket
import time

from trainyard.foundation.errors import Corrupt, NotPermitted, Unavailable
from trainyard.instance.parameter_server.surroundings import Address, Surroundings
from trainyard.instance.parameter_server.trust import greet_server

_AGAIN_S = 0.1


def connected(address: Address, around: Surroundings, timeout_s: float) -> socket.socket:
    """A connection that both sides trust; the server may still have to start."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection = socket.create_connection((address.host, address.port), timeout=timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _trusted(connection, around)
        except (OSError, Unavailable) as error:
            if time.monotonic() > until:
                raise Unavailable(f"No parameter server answers at {address} after {timeout_s:g} s.") from error
        time.sleep(_AGAIN_S)


def _trusted(connection: socket.socket, around: Surroundings) -> socket.socket:
    try:
        greet_server(connection, around.token, rank=around.rank, size=around.size)
    except (Unavailable, NotPermitted, Corrupt):
        connection.close()
        raise
    connection.settimeout(None)
    return connection
