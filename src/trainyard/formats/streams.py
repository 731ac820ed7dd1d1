"""Reading a given number of bytes from a stream that may give fewer at once, such as a pipe."""

from typing import BinaryIO

from trainyard.foundation.errors import Corrupt

_STEP_BYTES = 16 << 20  # of what a header only claims to follow, no more is asked for at once


def read_exactly(stream: BinaryIO, size: int, *, offset: int, what: str, may_end: bool = True) -> bytes:
    """`size` bytes, or none at the end of the stream where it `may_end`; Corrupt when it ends before.

    `offset` is where in the stream this is, and `what` is wanted there, for the message.
    """
    data = stream.read(min(size, _STEP_BYTES))
    if len(data) == size or (not data and may_end):
        return data
    pieces, count = [data], len(data)
    while count < size and (piece := stream.read(min(size - count, _STEP_BYTES))):
        pieces.append(piece)
        count += len(piece)
    if count < size:
        raise Corrupt(f"The stream ends at byte {offset + count}, in {what} that needs {size - count} bytes more.")
    return b"".join(pieces)
