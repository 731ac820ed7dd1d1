"""Words that workers and servers exchange, as JSON: the head of each frame, and all of one that has no tensors.

Four bytes have the length of the JSON. It needs no torch, so that who has none can speak with a server as well.
"""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import Corrupt, Unavailable

_LENGTH = struct.Struct("!I")
_TENSORS = "tensors"  # what each of those is that follow


def send_words(connection: socket.socket, words: Mapping[str, Any], tensors: Sequence[Sequence[Any]] = ()) -> None:
    """Send words, and what the tensors are that will follow. Unavailable when the other side is gone."""
    head = json.dumps({**words, _TENSORS: list(tensors)}).encode()
    send_bytes(connection, _LENGTH.pack(len(head)) + head)


def receive_words(connection: socket.socket, *, max_bytes: int) -> tuple[dict[str, Any], list[Any]]:
    """Words, and what the tensors are that follow; Corrupt when it makes no sense, Unavailable when nothing comes."""
    length = int(_LENGTH.unpack(receive_bytes(connection, _LENGTH.size))[0])
    if length > max_bytes:
        raise Corrupt(f"A frame's head would have {length} bytes; at most {max_bytes} are accepted.")
    try:
        words = json.loads(bytes(receive_bytes(connection, length)))
        return words, list(words.pop(_TENSORS))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corrupt("The head of a frame is not what frames of a parameter server have.") from error


def send_bytes(connection: socket.socket, data: bytes | memoryview) -> None:
    """Unavailable when the other side is gone."""
    try:
        connection.sendall(data)
    except OSError as error:
        raise Unavailable("The other side of the parameter server's connection is gone.") from error


def receive_bytes(connection: socket.socket, size: int) -> bytearray:
    """So many bytes; Unavailable when the other side is gone before."""
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
