"""The end of a program's output, kept in memory for the failure card."""

import re

TAIL_BYTES = 64 * 1024
CARD_LINES = 20
_MAX_LINE = 500

# Colours, cursor movements and titles, which progress bars and loggers write for terminals.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LINE_ENDS = re.compile(r"\r\n|[\r\n]")


class LogTail:
    """The last bytes of an output of any length."""

    def __init__(self, size_bytes: int = TAIL_BYTES) -> None:
        self._size = size_bytes
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data[-self._size :]
        # Cut rarely: moving the whole tail for every read would cost more than reading.
        if len(self._bytes) > 2 * self._size:
            del self._bytes[: -self._size]

    @property
    def text(self) -> str:
        """The tail as text without terminal escapes. Invalid UTF-8 is replaced."""
        return _ESCAPES.sub("", bytes(self._bytes[-self._size :]).decode(errors="replace"))

    def lines(self, count: int = CARD_LINES) -> list[str]:
        """The last lines that are not empty, with long ones cut. A carriage return also ends a line."""
        lines = [line.rstrip() for line in _LINE_ENDS.split(self.text)]
        return [line[:_MAX_LINE] for line in lines if line][-count:]
