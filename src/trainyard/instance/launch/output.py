"""The lines of several processes in one stream, each whole."""

import os

TAIL_BYTES = 16 * 1024
STALE_S = 0.5  # after which the beginning of a line is shown that nobody ends, such as that of a progress bar

_READ_BYTES = 1 << 16
_LONGEST_LINE = 1 << 16


class Stream:
    """One descriptor to read from. Before each of its lines comes `prefix`; `tail` gets what was written last."""

    def __init__(self, reader: int, *, prefix: bytes, tail: bytearray) -> None:
        os.set_blocking(reader, False)
        self.reader = reader
        self.prefix = prefix
        self.tail = tail
        self.unended = b""
        self.since = 0.0  # when the beginning of the unended line came


class Merger:
    """Writes what streams bring to one descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._last: Stream | None = None  # whose line has no end yet, of those written

    def take(self, stream: Stream, now: float) -> bool:
        """Pass on the lines that have come; False at the end of the stream."""
        data = _read(stream.reader)
        if data:
            self._add(stream, data, now)
        elif data == b"":
            self.flush(stream)
        return data != b""

    def say(self, line: str) -> None:
        """Write a line of the launcher's own."""
        before = b"" if self._last is None else b"\n"
        self._last = None
        _write_all(self._target, before + line.encode() + b"\n")

    def drain(self, stream: Stream, now: float) -> None:
        """Pass on all that is there, as after the end of its process."""
        while data := _read(stream.reader):
            self._add(stream, data, now)
        self.flush(stream)

    def flush_stale(self, stream: Stream, now: float) -> None:
        if stream.unended and now - stream.since >= STALE_S:
            self.flush(stream)

    def flush(self, stream: Stream) -> None:
        """Show the beginning of a line, which its stream may yet go on with."""
        if stream.unended:
            self._write(stream, stream.unended)
            stream.unended = b""

    def _add(self, stream: Stream, data: bytes, now: float) -> None:
        stream.tail += data
        del stream.tail[:-TAIL_BYTES]
        lines, newline, rest = (stream.unended + data).rpartition(b"\n")
        if newline:
            self._write(stream, lines + newline)
        if rest and (newline or not stream.unended):
            stream.since = now
        stream.unended = rest
        if len(rest) > _LONGEST_LINE:
            self.flush(stream)

    def _write(self, stream: Stream, data: bytes) -> None:
        is_new_line = self._last is not stream
        before = b"\n" if self._last is not None and is_new_line else b""
        self._last = None if data.endswith(b"\n") else stream
        _write_all(self._target, before + _prefixed(data, stream.prefix, is_new_line=is_new_line))


def _read(reader: int) -> bytes | None:
    """What there is; nothing at the end, None when there is nothing for now."""
    try:
        return os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return None


def _prefixed(data: bytes, prefix: bytes, *, is_new_line: bool) -> bytes:
    if not prefix:
        return data
    lines = data.splitlines(keepends=True)
    first, others = lines[0], lines[1:]
    return b"".join([prefix + first if is_new_line else first, *(prefix + line for line in others)])


def _write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
