import fcntl
import os
import signal
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import pytest

from trainyard.cli.terminal.screen import Screen


@dataclass(frozen=True, slots=True)
class Terminal:
    """A pseudo terminal. `keyboard` is the end of the user."""

    keyboard: int
    output: TextIO

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def seen(self) -> str:
        return os.read(self.keyboard, 65536).decode()

    def seen_to(self, end: str) -> str:
        """Return the output up to a given end. One write may arrive in several reads."""
        seen = self.seen()
        while not seen.endswith(end):
            seen += self.seen()
        return seen


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    keyboard, program = os.openpty()
    with os.fdopen(program, "w") as output:
        made = Terminal(keyboard, output)
        made.resize(3, 10)
        yield made
    os.close(keyboard)


def screen_of(terminal: Terminal) -> Screen:
    return Screen(terminal.output.fileno(), terminal.output)


def test_the_terminal_is_left_as_it_was(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.output.fileno())
    handler = signal.getsignal(signal.SIGWINCH)
    with screen_of(terminal):
        assert termios.tcgetattr(terminal.output.fileno()) != before
    assert termios.tcgetattr(terminal.output.fileno()) == before
    assert signal.getsignal(signal.SIGWINCH) is handler
    assert terminal.seen_to("\x1b[?25h\x1b[?1049l").startswith("\x1b[?1049h")


def test_lines_are_cut_to_the_room_there_is_and_drawn_in_one_go(terminal: Terminal) -> None:
    with screen_of(terminal) as screen:
        terminal.seen()
        screen.draw(["a" * 20, "b", "c", "d"])
        assert terminal.seen_to("\x1b[J") == "\x1b[H" + "a" * 9 + "\x1b[K\r\nb\x1b[K\r\nc\x1b[K\x1b[J"


def test_a_terminal_that_does_not_know_its_size_has_the_usual_one(terminal: Terminal) -> None:
    terminal.resize(0, 0)
    with screen_of(terminal) as screen:
        terminal.seen()
        screen.draw(["a" * 100] * 30)
        shown = terminal.seen_to("\x1b[J")
    assert (shown.count("\n"), shown.count("a")) == (23, 24 * 79)


def test_a_key_ends_a_wait(terminal: Terminal) -> None:
    with screen_of(terminal) as screen:
        os.write(terminal.keyboard, b"q")
        assert screen.wait(60) == "q"
        assert screen.wait(0) is None


def test_another_size_ends_a_wait(terminal: Terminal) -> None:
    with screen_of(terminal) as screen:
        os.kill(os.getpid(), signal.SIGWINCH)
        assert screen.wait(60) is None
        terminal.resize(1, 5)
        terminal.seen()
        screen.draw(["abcdefgh", "b"])
        assert terminal.seen() == "\x1b[Habcd\x1b[K\x1b[J"
