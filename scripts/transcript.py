"""Type the commands of a page on a terminal, and write what they print into the page.

`python -m scripts.transcript docs/first-hour.md` replaces the output in each console block of the page. A test types
the commands again and compares what they print, except for numbers, which no two runs share.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import Step, blocks, outcomes, script, steps
from tests.docs.shells import shell_environment

MARK = "<!-- typed on a terminal -->"
COLUMNS, LINES = 100, 50

_RANDOM = re.compile(r"-[0-9a-f]{8}\b")
_NUMBER = re.compile(r"\d[\d:.,-]*")
_BAR = re.compile(r"[█▏▎▍▌▋▊▉]+")
_UNIT = re.compile(r"# ?(s|B|KiB|MiB|GiB|h|min)\b")
_SPACES = re.compile(r" +")


@dataclass(frozen=True, slots=True)
class Typed:
    """A command of a page, what it printed on the terminal, and its exit status."""

    step: Step
    printed: str
    status: int


def page_steps(page: Path) -> list[Step]:
    """Return the commands of a page, in order."""
    return [step for block in blocks(page) if block.is_run for step in steps(block)]


def type_commands(wanted: Sequence[Step], folder: Path) -> list[Typed]:
    """Run commands one after the other in one shell on a terminal, in an empty home folder."""
    printed = _run_on_terminal(script(list(wanted)), folder, shell_environment(folder))
    return [Typed(step, text, status) for step, (text, status) in zip(wanted, outcomes(printed), strict=True)]


def mask_numbers(printed: str) -> list[str]:
    """Return the lines of an output with everything that differs between two runs masked."""
    lines = [_NUMBER.sub("#", _RANDOM.sub("#", _BAR.sub("", line))) for line in printed.splitlines()]
    return [_SPACES.sub(" ", _UNIT.sub("#", line)).strip() for line in lines]


def write_page(page: Path, typed: Sequence[Typed]) -> None:
    """Replace the output of each command in the page."""
    text, remaining = page.read_text(), list(typed)
    for block in blocks(page):
        if block.is_run:
            count = len(steps(block))
            text = text.replace(block.code, "".join(_shown(each) for each in remaining[:count]))
            del remaining[:count]
    page.write_text(text)


def _shown(typed: Typed) -> str:
    command = typed.step.command.replace("\n", "\n> ")
    return f"$ {command}\n" + "".join(f"{line}\n" for line in typed.printed.rstrip().splitlines())


def _run_on_terminal(text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Return what a shell script prints on a terminal that can only append lines."""
    controller, terminal = pty.openpty()
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        shell = subprocess.Popen(
            ["bash", "-c", text],
            cwd=folder,
            env={**environment, "TERM": "dumb", "NO_COLOR": "1"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
    finally:
        os.close(terminal)
    with os.fdopen(controller, "rb", buffering=0) as output, shell:
        printed = b"".join(_chunks(output.fileno()))
    return printed.decode().replace("\r\n", "\n")


def _chunks(descriptor: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:
            # Linux reports the end of a terminal as an input/output error.
            return found
        if not chunk:
            return found
        found.append(chunk)


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory(prefix="transcript-") as folder:
            write_page(page, type_commands(page_steps(page), Path(folder)))


if __name__ == "__main__":
    main()
