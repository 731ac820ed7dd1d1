"""TensorBoard event files: TFRecords of protocol buffers, with only the messages that scalars and histograms need.

The messages are those of TensorFlow's event.proto and summary.proto. Every TensorBoard shows the old forms
`simple_value` and `histo`, and its own reader libraries return them.
"""

import io
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.tfrecord import write_tfrecord

VERSION = "brain.Event:2"

# Wire types of protocol buffers.
_VARINT, _64_BITS, _BYTES, _32_BITS = 0, 1, 2, 5
_MICROS_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class Scalar:
    tag: str
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The counts of elements in adjacent intervals; `limits` are their right ends."""

    tag: str
    low: float
    high: float
    count: float
    total: float
    # The sum of the squares.
    squares: float
    limits: Sequence[float]
    counts: Sequence[float]


Summary = Scalar | Histogram


class EventFile:
    """Appends events to one file of a run; a reader sees a step completely or not at all.

    Nothing is buffered: the events are in the file when a call returns. Raises OSError if writing fails.
    """

    def __init__(self, folder: Path, *, writer: str, at_us: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(at_us / _MICROS_PER_S)}.{writer}.{os.getpid()}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._append([_event(at_us, step=0, body=_text(3, VERSION))])

    def write(self, step: int, summaries: Iterable[Summary], *, at_us: int) -> None:
        """Append the summaries of a step."""
        body = b"".join(_message(1, _value(summary)) for summary in summaries)
        if body:
            self._append([_event(at_us, step=step, body=_message(5, body))])

    def close(self) -> None:
        os.close(self._file)

    def _append(self, events: Iterable[bytes]) -> None:
        records = io.BytesIO()
        for event in events:
            write_tfrecord(records, event)
        os.write(self._file, records.getvalue())


def _event(at_us: int, *, step: int, body: bytes) -> bytes:
    return _double(1, at_us / _MICROS_PER_S) + _key(2, _VARINT) + _varint(step) + body


def _value(summary: Summary) -> bytes:
    if isinstance(summary, Scalar):
        return _text(1, summary.tag) + _key(2, _32_BITS) + struct.pack("<f", _to_float32(summary.value))
    sums = (summary.low, summary.high, summary.count, summary.total, summary.squares)
    numbers = b"".join(_double(field, value) for field, value in enumerate(sums, 1))
    histogram = numbers + _message(6, _doubles(summary.limits)) + _message(7, _doubles(summary.counts))
    return _text(1, summary.tag) + _message(5, histogram)


def _to_float32(value: float) -> float:
    """Return a value that fits a 32-bit float; too large values become infinite."""
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return value


def _doubles(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _double(field: int, value: float) -> bytes:
    return _key(field, _64_BITS) + struct.pack("<d", value)


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _message(field: int, body: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(body)) + body


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
