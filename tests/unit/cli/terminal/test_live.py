import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import pytest

from trainyard.cli.terminal.blocks import Bar, Table, Title
from trainyard.cli.terminal.live import LiveView


@dataclass(frozen=True, slots=True)
class Terminal:
    """A pseudo terminal. `keyboard` is the end of the user."""

    keyboard: int
    output: TextIO

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def seen_to(self, text: str) -> str:
        """Return the output up to a text, which may arrive in several pieces."""
        seen = ""
        while text not in seen:
            seen += os.read(self.keyboard, 65536).decode()
        return seen


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    keyboard, program = os.openpty()
    with os.fdopen(program, "w") as output:
        made = Terminal(keyboard, output)
        made.resize(3, 10)
        yield made
    os.close(keyboard)


def view_of(terminal: Terminal) -> LiveView:
    return LiveView(terminal.output.fileno(), terminal.output)


def test_the_terminal_is_left_as_it_was(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.output.fileno())
    handler = signal.getsignal(signal.SIGWINCH)
    with view_of(terminal):
        assert termios.tcgetattr(terminal.output.fileno()) != before
    assert termios.tcgetattr(terminal.output.fileno()) == before
    assert signal.getsignal(signal.SIGWINCH) is handler
    seen = terminal.seen_to("\x1b[?1049l")
    assert seen.startswith("\x1b[?1049h")
    assert "\x1b[?25h" in seen


def test_what_is_drawn_is_cut_to_the_size_of_the_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without them, the size is that of the terminal of this process.
    monkeypatch.setenv("LINES", "3")
    monkeypatch.setenv("COLUMNS", "10")
    with view_of(terminal) as view:
        view.draw([Title("first"), "a" * 20, "third", Bar("cpu", 0.5, "1 of 2"), Table(("job",), [("mnist",)])])
    shown = terminal.seen_to("\x1b[?1049l")
    assert "first" in shown
    assert "mnist" not in shown
    assert "a" * 11 not in shown


def test_a_key_ends_a_wait(terminal: Terminal) -> None:
    with view_of(terminal) as view:
        os.write(terminal.keyboard, b"q")
        assert view.wait(60) == "q"
        assert view.wait(0) is None


def test_another_size_ends_a_wait(terminal: Terminal) -> None:
    with view_of(terminal) as view:
        os.kill(os.getpid(), signal.SIGWINCH)
        assert view.wait(60) is None
