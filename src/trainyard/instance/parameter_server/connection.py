"""Connections between workers and parameter servers: messages, the handshake, and connecting.

A message is JSON behind its length in four bytes. It is the head of each frame, or all of a frame without tensors. None
of this needs torch, so that a process without it can talk to a server too.
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.errors import Corrupt, NotPermitted, Unavailable
from trainyard.instance.parameter_server.config import Address, ParameterServerConfig

_LENGTH = struct.Struct("!I")
# The field with name, type and shape of each tensor that follows.
_TENSORS = "tensors"
_RETRY_S = 0.1
# For a peer that has not authenticated yet.
_MAX_HANDSHAKE_BYTES = 4096
_PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker that knows the secret."""

    rank: int
    size: int


def connect(address: Address, config: ParameterServerConfig, timeout_s: float) -> socket.socket:
    """Return an authenticated connection to a server, which may still have to start."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection = socket.create_connection((address.host, address.port), timeout=timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _authenticate(connection, config)
            return connection
        except (OSError, Unavailable) as error:
            if time.monotonic() > until:
                raise Unavailable(f"No parameter server answers at {address} after {timeout_s:g} s.") from error
        time.sleep(_RETRY_S)


def authenticate_worker(connection: socket.socket, token: str) -> Peer:
    """Check that a worker knows the secret, and prove that this server does. NotPermitted if the worker does not."""
    nonce = secrets.token_hex(16)
    send_message(connection, {"protocol": _PROTOCOL, "nonce": nonce})
    answer = _receive_handshake(connection)
    theirs = str(answer.get("nonce"))
    if not hmac.compare_digest(str(answer.get("proof")), _proof(token, "worker", nonce, theirs)):
        # Keeps the worker from trying again.
        send_message(connection, {"proof": ""})
        raise NotPermitted("A worker does not know the secret of this parameter server.")
    send_message(connection, {"proof": _proof(token, "server", nonce, theirs)})
    rank, size = answer.get("rank"), answer.get("size")
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size:
        raise Corrupt(f"A worker claims to be number {rank} of {size}.")
    return Peer(rank, size)


def authenticate_server(connection: socket.socket, token: str, *, rank: int, size: int) -> None:
    """Prove that this worker knows the secret, and check that the server does. NotPermitted if it does not."""
    challenge = _receive_handshake(connection)
    if challenge.get("protocol") != _PROTOCOL:
        raise Corrupt(f"The parameter server speaks protocol {challenge.get('protocol')}, this worker {_PROTOCOL}.")
    nonce, mine = str(challenge.get("nonce")), secrets.token_hex(16)
    proof = _proof(token, "worker", nonce, mine)
    send_message(connection, {"nonce": mine, "proof": proof, "rank": rank, "size": size})
    answer = _receive_handshake(connection)
    if not hmac.compare_digest(str(answer.get("proof")), _proof(token, "server", nonce, mine)):
        raise NotPermitted("The process at the parameter server's address does not know the job's secret.")


def send_message(connection: socket.socket, message: Mapping[str, Any], tensors: Sequence[Sequence[Any]] = ()) -> None:
    """Send a message with the headers of the tensors that follow. Unavailable if the other side is gone."""
    head = json.dumps({**message, _TENSORS: list(tensors)}).encode()
    send_bytes(connection, _LENGTH.pack(len(head)) + head)


def receive_message(connection: socket.socket, *, max_bytes: int) -> tuple[dict[str, Any], list[Any]]:
    """Receive a message and the headers of the tensors that follow.

    Corrupt if it is invalid, Unavailable if the other side is gone.
    """
    length = int(_LENGTH.unpack(receive_bytes(connection, _LENGTH.size))[0])
    if length > max_bytes:
        raise Corrupt(f"The head of a frame has {length} bytes; the maximum is {max_bytes}.")
    try:
        message = json.loads(bytes(receive_bytes(connection, length)))
        return message, list(message.pop(_TENSORS))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt("The head of a parameter server's frame is invalid.") from error


def send_bytes(connection: socket.socket, data: bytes | memoryview) -> None:
    """Send all bytes. Unavailable if the other side is gone."""
    try:
        connection.sendall(data)
    except OSError as error:
        raise Unavailable("The other side of the parameter server's connection is gone.") from error


def receive_bytes(connection: socket.socket, size: int) -> bytearray:
    """Receive exactly `size` bytes. Unavailable if the other side is gone before that."""
    memory = bytearray(size)
    rest = memoryview(memory)
    while rest:
        try:
            count = connection.recv_into(rest)
        except OSError as error:
            raise Unavailable("The other side of the parameter server's connection is gone.") from error
        if not count:
            raise Unavailable("The other side has closed the parameter server's connection.")
        rest = rest[count:]
    return memory


def _authenticate(connection: socket.socket, config: ParameterServerConfig) -> None:
    try:
        authenticate_server(connection, config.token, rank=config.rank, size=config.size)
    except (Unavailable, NotPermitted, Corrupt):
        connection.close()
        raise
    connection.settimeout(None)


def _receive_handshake(connection: socket.socket) -> dict[str, object]:
    message, tensors = receive_message(connection, max_bytes=_MAX_HANDSHAKE_BYTES)
    if tensors:
        raise Corrupt("A peer that has not authenticated yet sends tensors.")
    return message


def _proof(token: str, side: str, *nonces: str) -> str:
    return hmac.new(token.encode(), ":".join([side, *nonces]).encode(), hashlib.sha256).hexdigest()
