"""A live view: takes over the terminal, is drawn again and again, and reads single keys."""

import os
import select
import signal
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from trainyard.cli.terminal.blocks import Block, rich_blocks
from trainyard.cli.terminal.drawing import is_terminal, rich_console

QUIT_KEYS = ("q", "Q", "\x1b", "\x04")


def can_draw() -> bool:
    """Return whether this process has a terminal for a live view. Windows has none that reads single keys."""
    try:
        import termios  # noqa: F401
    except ModuleNotFoundError:
        return False
    return sys.stdin.isatty() and is_terminal(sys.stdout)


class LiveView:
    """Takes over the whole terminal for a block. A resize ends a wait at once."""

    def __init__(self, keys: int, output: TextIO) -> None:
        self._keys, self._output = keys, output

    def __enter__(self) -> Self:
        import termios
        import tty

        from rich.live import Live

        self._before: list[Any] = termios.tcgetattr(self._keys)
        self._resized, self._bell = os.pipe()
        for end in (self._resized, self._bell):
            os.set_blocking(end, False)
        self._handler = signal.signal(signal.SIGWINCH, lambda *_: None)
        self._wakeup = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        tty.setcbreak(self._keys)
        self._live = Live(
            console=rich_console(self._output),
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        self._live.stop()
        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGWINCH, self._handler)
        os.close(self._resized)
        os.close(self._bell)

    def draw(self, blocks: Sequence[Block]) -> None:
        """Draw from the top, cut to the size of the terminal."""
        self._live.update(rich_blocks(blocks), refresh=True)

    def wait(self, seconds: float) -> str | None:
        """Return the next key; None after a timeout or a resize."""
        ready, _, _ = select.select([self._keys, self._resized], [], [], seconds)
        if self._resized in ready:
            os.read(self._resized, 1024)
        if self._keys not in ready:
            return None
        return os.read(self._keys, 1024).decode(errors="replace")[:1] or "\x04"
