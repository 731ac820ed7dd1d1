"""How the two sides of a connection prove to each other that they know the job's secret, without saying it."""

import hashlib
import hmac
import secrets
import socket
from dataclasses import dataclass

from trainyard.foundation.errors import Corrupt, NotPermitted
from trainyard.instance.parameter_server.words import receive_words, send_words

_MAX_HEAD_BYTES = 4096  # of a side that has proved nothing yet
_PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker that knows the secret."""

    rank: int
    size: int


def greet_worker(connection: socket.socket, token: str) -> Peer:
    """Let a worker prove itself, and prove this server to it. NotPermitted when it does not know the secret."""
    nonce = secrets.token_hex(16)
    send_words(connection, {"protocol": _PROTOCOL, "nonce": nonce})
    told = _told(connection)
    theirs = str(told.get("nonce"))
    if not hmac.compare_digest(str(told.get("proof")), _proof(token, "worker", nonce, theirs)):
        send_words(connection, {"proof": ""})  # so that it does not try again
        raise NotPermitted("A worker does not know the secret of this parameter server.")
    send_words(connection, {"proof": _proof(token, "server", nonce, theirs)})
    rank, size = told.get("rank"), told.get("size")
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size:
        raise Corrupt(f"A worker says that it is number {rank} of {size}.")
    return Peer(rank, size)


def greet_server(connection: socket.socket, token: str, *, rank: int, size: int) -> None:
    """Prove this worker to a server, and let that prove itself. NotPermitted when it does not know the secret."""
    told = _told(connection)
    if told.get("protocol") != _PROTOCOL:
        raise Corrupt(f"The parameter server speaks protocol {told.get('protocol')}, this worker {_PROTOCOL}.")
    nonce, mine = str(told.get("nonce")), secrets.token_hex(16)
    proof = _proof(token, "worker", nonce, mine)
    send_words(connection, {"nonce": mine, "proof": proof, "rank": rank, "size": size})
    if not hmac.compare_digest(str(_told(connection).get("proof")), _proof(token, "server", nonce, mine)):
        raise NotPermitted("What answers at the parameter server's address does not know the job's secret.")


def _told(connection: socket.socket) -> dict[str, object]:
    words, tensors = receive_words(connection, max_bytes=_MAX_HEAD_BYTES)
    if tensors:
        raise Corrupt("A side that has proved nothing yet sends tensors.")
    return words


def _proof(token: str, side: str, *nonces: str) -> str:
    return hmac.new(token.encode(), ":".join([side, *nonces]).encode(), hashlib.sha256).hexdigest()
