"""The spool of an instance: frames that an agent appends and a yard reads, each whole or absent.

A frame is one line: the CRC-32 of the rest in eight hexadecimal digits, a space, and a JSON array of sequence, kind,
time and payload. The JSON has no line break, so a line without an end is a frame being written, or one that a crash cut
short.
"""

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.foundation.files import PRIVATE_FILE, sync_folder
from trainyard.link.contract import Frame, FrameKind

MAX_FRAME_BYTES = 1024 * 1024
# The most of a spool that is read at once.
READ_BYTES = 4 * MAX_FRAME_BYTES

_CRC_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SpoolRead:
    """The result of a read. `next_offset` is the cursor for the next read, which a yard may store."""

    frames: tuple[Frame, ...]
    next_offset: int


class SpoolWriter:
    """Appends frames to one spool. Safe to share between threads of the one agent that owns it.

    Opening an existing spool cuts off a frame that a crash left incomplete and continues with the next sequence. A
    frame that `append` returned survives the death of the process; with `durable` it survives a power cut too.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            tail = _read_tail(path)
            os.ftruncate(self._descriptor, tail.end)
            sync_folder(path.parent)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._sequence = tail.sequence

    def append(self, kind: FrameKind, payload: Mapping[str, Any], *, at_us: int, durable: bool = False) -> Frame:
        """Write one frame. Raises InvalidRequest if it is too large."""
        with self._lock:
            frame = Frame(self._sequence + 1, kind, at_us, payload)
            line = _encode(frame)
            self._write(line)
            if durable:
                os.fdatasync(self._descriptor)
            self._sequence = frame.sequence
            return frame

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        start = os.fstat(self._descriptor).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # On a full disk, half a frame must not be in the way of the next one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise


def read_frames(path: Path, offset: int) -> SpoolRead:
    """Read whole frames from `offset` on, up to READ_BYTES; none if there is no spool yet.

    Raises Corrupt if a frame between others is damaged, or if the sequence has a gap.
    """
    try:
        with path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), READ_BYTES, offset)
    except FileNotFoundError:
        return SpoolRead((), offset)
    frames: list[Frame] = []
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        frame = decode_frame(data[position:end])
        if frame is None and _has_frame_after(data, end):
            raise Corrupt(f"{path} is damaged at byte {offset + position}.")
        if frame is None:
            break
        _check_sequence(frames, frame, path)
        frames.append(frame)
        position = end + 1
    if not frames and len(data) >= MAX_FRAME_BYTES:
        raise Corrupt(f"{path} holds no frame at byte {offset}.")
    return SpoolRead(tuple(frames), offset + position)


def last_frame(path: Path) -> Frame | None:
    """Return the newest whole frame, read from the end; None if there is none."""
    return _read_tail(path).frame


def decode_frame(line: bytes) -> Frame | None:
    """Decode a line, without its line break; None if it is damaged or incomplete."""
    body = line[_CRC_DIGITS + 1 :]
    if line[: _CRC_DIGITS + 1] != b"%08x " % zlib.crc32(body):
        return None
    try:
        sequence, kind, at_us, payload = json.loads(body)
        return Frame(sequence, FrameKind(kind), at_us, payload)
    except ValueError as error:
        raise Corrupt(f"A frame of the spool is whole but not understood: {error}.") from error


@dataclass(frozen=True, slots=True)
class _SpoolTail:
    """The last whole frame of a spool, and the offset after it."""

    frame: Frame | None
    end: int

    @property
    def sequence(self) -> int:
        return self.frame.sequence if self.frame else 0


def _read_tail(path: Path) -> _SpoolTail:
    """Read only the end of the spool, however long it is."""
    try:
        size = path.stat().st_size
        start = max(0, size - READ_BYTES)
        with path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), size - start, start)
    except FileNotFoundError:
        return _SpoolTail(None, 0)
    end = data.rfind(b"\n")
    while end >= 0:
        begin = data.rfind(b"\n", 0, end) + 1
        frame = decode_frame(data[begin:end])
        if frame is not None:
            return _SpoolTail(frame, start + end + 1)
        end = begin - 1
    if start:
        raise Corrupt(f"{path} ends with {READ_BYTES} bytes that hold no frame.")
    return _SpoolTail(None, 0)


def _encode(frame: Frame) -> bytes:
    values = [frame.sequence, frame.kind.value, frame.at_us, frame.payload]
    body = json.dumps(values, separators=(",", ":")).encode()
    if len(body) + _CRC_DIGITS + 2 > MAX_FRAME_BYTES:
        raise InvalidRequest(f"A {frame.kind} frame of {len(body)} bytes is too large; {MAX_FRAME_BYTES} is the most.")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _has_frame_after(data: bytes, position: int) -> bool:
    return any(decode_frame(line) for line in data[position + 1 :].split(b"\n")[:-1])


def _check_sequence(frames: list[Frame], frame: Frame, path: Path) -> None:
    expected = frames[-1].sequence + 1 if frames else frame.sequence
    if frame.sequence != expected:
        raise Corrupt(f"{path} has frame {frame.sequence} where frame {expected} is expected.")
