"""Messages with bytes, for a process that answers with arrays: a line of JSON, and the bytes after it.

A conversation begins with a question from the yard. The process may then ask for files, as often as it needs, and ends
the conversation with its answer.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Generic, TypeVar

# The largest part of a file that is sent at once.
MAX_PART_BYTES = 16 << 20
# The largest answer.
MAX_BYTES = 256 << 20

_SIZE = "bytes"


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class BlobAnswer(Generic[Answer]):
    """An answer with its arrays as bytes, by the names of its blobs."""

    answer: Answer
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message with the bytes that belong to it."""

    message: Mapping[str, Any]
    body: bytes = field(default=b"", repr=False)


def send(file: IO[bytes], message: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
    file.write(json.dumps({**message, _SIZE: len(body)}).encode() + b"\n")
    file.write(body)
    file.flush()


def receive(file: IO[bytes]) -> Parcel:
    """Read a message. EOFError, which is no OSError, at the end of the file; ValueError if it is cut off."""
    line = file.readline()
    if not line:
        raise EOFError
    message = json.loads(line)
    size = message.pop(_SIZE)
    if not 0 <= size <= MAX_BYTES:
        raise ValueError(f"a message cannot have {size} bytes")
    body = file.read(size)
    if len(body) < size:
        raise ValueError("a message was cut off")
    return Parcel(message, body)


def receive_answer(answers: IO[bytes]) -> Parcel:
    """Read a message of the process. ValueError if it has ended, as in `WorkerProcess.converse`."""
    try:
        return receive(answers)
    except EOFError as error:
        raise ValueError("the process has ended") from error


def send_blobs(file: IO[bytes], answer: Any, blobs: Mapping[str, bytes]) -> None:
    """Send an answer with its arrays."""
    sizes = {name: len(each) for name, each in blobs.items()}
    send(file, {"answer": answer, "blobs": sizes}, b"".join(blobs.values()))


def cut_blobs(parcel: Parcel) -> Iterator[tuple[str, bytes]]:
    """Yield the arrays of an answer by their names."""
    start = 0
    for name, size in parcel.message["blobs"].items():
        yield name, parcel.body[start : start + size]
        start += size
