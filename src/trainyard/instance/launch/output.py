"""Merges the lines of several processes into one stream without mixing them."""

import os

TAIL_BYTES = 16 * 1024
# A partial line, such as a progress bar, is shown after this time.
STALE_S = 0.5

_READ_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 16


class OutputStream:
    """A descriptor to read from. Each of its lines gets `prefix`; `tail` keeps what was written last."""

    def __init__(self, reader: int, *, prefix: bytes, tail: bytearray) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self.prefix = prefix
        self.tail = tail
        self.partial_line = b""
        self.partial_since = 0.0


class OutputMerger:
    """Writes the lines of several streams to one descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        # The stream whose partial line was written last.
        self._last: OutputStream | None = None

    def forward(self, stream: OutputStream, now: float) -> bool:
        """Write the lines that have arrived; return False at the end of the stream."""
        data = _read_available(stream.reader)
        if data:
            self._add(stream, data, now)
        elif data == b"":
            self.flush(stream)
        return data != b""

    def write_line(self, line: str) -> None:
        """Write a line from the launcher itself."""
        before = b"" if self._last is None else b"\n"
        self._last = None
        _write_all(self._target, before + line.encode() + b"\n")

    def drain(self, stream: OutputStream, now: float) -> None:
        """Write everything that is left, after the end of the process."""
        while data := _read_available(stream.reader):
            self._add(stream, data, now)
        self.flush(stream)

    def flush_stale(self, stream: OutputStream, now: float) -> None:
        if stream.partial_line and now - stream.partial_since >= STALE_S:
            self.flush(stream)

    def flush(self, stream: OutputStream) -> None:
        """Write a partial line, which its stream may still continue."""
        if stream.partial_line:
            self._write(stream, stream.partial_line)
            stream.partial_line = b""

    def _add(self, stream: OutputStream, data: bytes, now: float) -> None:
        stream.tail += data
        del stream.tail[:-TAIL_BYTES]
        lines, newline, rest = (stream.partial_line + data).rpartition(b"\n")
        if newline:
            self._write(stream, lines + newline)
        if rest and (newline or not stream.partial_line):
            stream.partial_since = now
        stream.partial_line = rest
        if len(rest) > _MAX_LINE_BYTES:
            self.flush(stream)

    def _write(self, stream: OutputStream, data: bytes) -> None:
        is_new_line = self._last is not stream
        before = b"\n" if self._last is not None and is_new_line else b""
        self._last = None if data.endswith(b"\n") else stream
        _write_all(self._target, before + _add_prefix(data, stream.prefix, is_new_line=is_new_line))


def _read_available(reader: int) -> bytes | None:
    """Return the available data: empty at the end, None if there is none yet."""
    try:
        return os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return None


def _add_prefix(data: bytes, prefix: bytes, *, is_new_line: bool) -> bytes:
    if not prefix:
        return data
    lines = data.splitlines(keepends=True)
    first, others = lines[0], lines[1:]
    return b"".join([prefix + first if is_new_line else first, *(prefix + line for line in others)])


def _write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
