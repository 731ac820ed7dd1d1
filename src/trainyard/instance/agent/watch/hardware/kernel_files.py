"""Files of the kernel that are read again and again: each stays open, and a read begins at its start."""

import os
from collections.abc import Sequence
from pathlib import Path

_FIRST_BYTES = 4096


class KernelFile:
    """One file of /proc or /sys. It reads as empty while it is missing or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._bytes = _FIRST_BYTES

    def read(self) -> bytes:
        """Return the content of a file that the kernel makes in one piece."""
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            while len(data := os.pread(self._descriptor, self._bytes, 0)) == self._bytes:
                self._bytes *= 2
        except OSError:
            self.close()
            return b""
        return data

    def read_lines(self) -> bytes:
        """Return the content of a file that the kernel returns some whole lines at a time."""
        data = part = self.read()
        try:
            while part:
                part = os.pread(self._descriptor, self._bytes, len(data))
                data += part
        except OSError:
            self.close()
        return data

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Rates:
    """Turns counters that only grow into rates per second."""

    def __init__(self, count: int) -> None:
        self._counters: Sequence[float] | None = None
        self._at_s = 0.0
        self._none = [float("nan")] * count

    def update(self, counters: Sequence[float] | None, now_s: float) -> Sequence[float]:
        """Return the rates since the update before: NaN if there was none. A counter that begins anew has rate 0."""
        before, elapsed_s = self._counters, now_s - self._at_s
        self._counters, self._at_s = counters, now_s
        if before is None or counters is None or len(before) != len(counters) or elapsed_s <= 0:
            return self._none
        return [max(0.0, now - last) / elapsed_s for now, last in zip(counters, before, strict=True)]
