"""A full-screen terminal that is redrawn in place and reads single keys."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

# Switch to the alternate screen, which keeps the content of the terminal, and hide the cursor.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[H", "\x1b[K", "\x1b[J"


def can_draw(environment: Mapping[str, str]) -> bool:
    """Return whether this process has a terminal that can be redrawn."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and environment.get("TERM", "dumb") != "dumb"


class Screen:
    """Takes over the whole terminal for a block. A resize ends a wait at once."""

    def __init__(self, keys: int, output: TextIO) -> None:
        self._keys, self._output = keys, output

    def __enter__(self) -> Self:
        self._before: list[Any] = termios.tcgetattr(self._keys)
        self._resized, self._bell = os.pipe()
        for end in (self._resized, self._bell):
            os.set_blocking(end, False)
        self._handler = signal.signal(signal.SIGWINCH, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        tty.setcbreak(self._keys)
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGWINCH, self._handler)
        os.close(self._resized)
        os.close(self._bell)

    def draw(self, lines: Sequence[str]) -> None:
        """Draw lines from the top, cut to the size of the terminal. Overwriting avoids flicker."""
        terminal = os.get_terminal_size(self._output.fileno())
        # The last column stays free, because clearing to the end of a full line would erase its last character.
        # Terminals that do not know their size report 0.
        shown = [line[: (terminal.columns or 80) - 1] for line in lines[: terminal.lines or 24]]
        self._write(_HOME + f"{_TO_LINE_END}\n".join(shown) + _TO_LINE_END + _TO_SCREEN_END)

    def wait(self, seconds: float) -> str | None:
        """Return the next key; None after a timeout or a resize."""
        ready, _, _ = select.select([self._keys, self._resized], [], [], seconds)
        if self._resized in ready:
            os.read(self._resized, 1024)
        if self._keys not in ready:
            return None
        return os.read(self._keys, 1024).decode(errors="replace")[:1] or "\x04"

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()
