"""Event files as TensorBoard reads them: TFRecords of protocol buffers, of which only what scalars and histograms need.

The messages are those of TensorFlow's event.proto and summary.proto. The old forms `simple_value` and `histo` are shown
by every TensorBoard, and are what its own readers for programs give out.
"""

import io
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.tfrecord import write_tfrecord

VERSION = "brain.Event:2"

_VARINT, _64_BITS, _BYTES, _32_BITS = 0, 1, 2, 5  # how a field is written
_MICROS = 1e6


@dataclass(frozen=True, slots=True)
class Scalar:
    tag: str
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many elements lie in each of some neighbouring intervals, of which `limits` are the right ends."""

    tag: str
    low: float
    high: float
    count: float
    total: float
    squares: float  # the sum of them
    limits: Sequence[float]
    counts: Sequence[float]


Summary = Scalar | Histogram


class EventFile:
    """Appends events to one file of one run, each step whole or not at all as far as a reader can tell.

    Nothing is held back: what a call was given lies in the file when it returns. OSError when it cannot.
    """

    def __init__(self, folder: Path, *, writer: str, at_us: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(at_us / _MICROS)}.{writer}.{os.getpid()}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._append([_event(at_us, step=0, body=_text(3, VERSION))])

    def write(self, step: int, summaries: Iterable[Summary], *, at_us: int) -> None:
        """Add what is known of a step."""
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
    return _double(1, at_us / _MICROS) + _key(2, _VARINT) + _varint(step) + body


def _value(summary: Summary) -> bytes:
    if isinstance(summary, Scalar):
        return _text(1, summary.tag) + _key(2, _32_BITS) + struct.pack("<f", _single(summary.value))
    sums = (summary.low, summary.high, summary.count, summary.total, summary.squares)
    numbers = b"".join(_double(field, value) for field, value in enumerate(sums, 1))
    histogram = numbers + _message(6, _doubles(summary.limits)) + _message(7, _doubles(summary.counts))
    return _text(1, summary.tag) + _message(5, histogram)


def _single(value: float) -> float:
    """What is too large for 32 bits is infinite there."""
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
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
