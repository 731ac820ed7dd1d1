"""Reads a given number of bytes from a stream that may return fewer at once, such as a pipe."""

from typing import BinaryIO

from trainyard.foundation.errors import Corrupt

# A corrupt header may announce any size, so no more than this is requested at once.
_STEP_BYTES = 16 << 20


def read_exactly(stream: BinaryIO, size: int, *, offset: int, what: str, may_end: bool = True) -> bytes:
    """Read `size` bytes; none at the end of the stream if it `may_end` here. Raise Corrupt if it ends before.

    The message names the `offset` in the stream and `what` is read there.
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
