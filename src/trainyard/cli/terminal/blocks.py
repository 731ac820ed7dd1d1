"""What a command shows, apart from where: lines, bars and tables. rich draws them on a terminal."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trainyard.cli.terminal.charts import bar, block
from trainyard.cli.terminal.drawing import has_color, inert, rich_console, styled
from trainyard.cli.terminal.tables import UNLIMITED_WIDTH, Column, Row, rich_table, table_lines

if TYPE_CHECKING:
    from rich.console import Group

_BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Bar:
    """A share from 0 to 1 with its title and its meaning in words."""

    title: str
    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the titles of their columns."""

    columns: Sequence[Column | str]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Title:
    """A line that is emphasized on a terminal."""

    text: str


Block = str | Title | Bar | Table


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print blocks to stdout, each in its full width."""
    if has_color(sys.stdout):
        rich_console(sys.stdout, width=UNLIMITED_WIDTH).print(rich_blocks(blocks))
        return
    for line in plain_lines(blocks, filled=block()):
        click.echo(line)


def plain_lines(blocks: Sequence[Block], *, filled: str) -> Iterator[str]:
    """Yield the blocks without emphasis. Bars that follow each other are aligned."""
    width = max((len(each.title) for each in blocks if isinstance(each, Bar)), default=0)
    for each in blocks:
        if isinstance(each, Bar):
            yield f"{each.title:<{width}}  {bar(each.share, _BAR_WIDTH, filled=filled)}  {inert(each.text)}"
        elif isinstance(each, Table):
            yield from table_lines(each.columns, each.rows)
        else:
            yield inert(each.text if isinstance(each, Title) else each)


def rich_blocks(blocks: Sequence[Block]) -> "Group":
    """Return the blocks as rich draws them."""
    from rich.columns import Columns
    from rich.console import Group, RenderableType
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    width = max((len(each.title) for each in blocks if isinstance(each, Bar)), default=0)
    drawn: list[RenderableType] = []
    for each in blocks:
        if isinstance(each, Bar):
            share = ProgressBar(
                total=1.0,
                completed=min(each.share, 1.0),
                width=_BAR_WIDTH,
                complete_style="cyan",
                finished_style="yellow",
                style="bright_black",
            )
            drawn.append(Columns([styled(each.title.ljust(width)), share, styled(each.text)], padding=(0, 2)))
        elif isinstance(each, Table):
            drawn.append(rich_table(each.columns, each.rows))
        else:
            text = styled(each.text, "bold") if isinstance(each, Title) else styled(each)
            drawn.append(text if text.plain else Text(" "))
    return Group(*drawn)
