"""Where rich draws, and in which colours. rich is imported only for a terminal, because the import takes 0.1 s."""

import os
import re
from typing import TYPE_CHECKING, TextIO

import click

from trainyard._sdk.training.console import terminal_safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_COLOR = re.compile(r"\x1b\[[0-9;]*m")

# The colours of the words that stand for the state of a job, an instance or a rule.
_STYLES = {
    "Completed": "green",
    "Failed": "red",
    "Stopped": "yellow",
    "Stopping": "yellow",
    "InProgress": "cyan",
    "IssuesFound": "yellow",
    "NoIssuesFound": "green",
    "Error": "red",
}


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which text can be replaced."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def has_color(stream: TextIO) -> bool:
    """Return whether to emphasize text on a stream: on a terminal, unless --color or the environment decide."""
    context = click.get_current_context(silent=True)
    choice = context.find_root().color if context else None
    return is_terminal(stream) if choice is None else choice


def rich_console(stream: TextIO, *, width: int | None = None) -> "Console":
    """Return a console that interprets no markup, so that names and logs of jobs are shown as they are."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=True,
        color_system="standard" if has_color(stream) else None,
        # NO_COLOR has been considered already, and --color overrides it.
        no_color=False,
        highlight=False,
        markup=False,
        emoji=False,
        width=width,
    )


def inert(text: str) -> str:
    """Return text on one line without any control sequence, not even colours."""
    return _COLOR.sub("", terminal_safe(text.replace("\n", " ").replace("\t", " ")))


def styled(text: str, style: str = "") -> "Text":
    """Return inert text for rich in a style; without one, in the colour of the state that it names."""
    from rich.text import Text

    return Text(inert(text), style or _STYLES.get(text, ""))
