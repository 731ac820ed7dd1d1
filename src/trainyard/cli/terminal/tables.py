"""Tables: with emphasis on a terminal, as plain aligned columns for other programs."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from trainyard.cli.terminal.drawing import has_color, inert, rich_console, styled

if TYPE_CHECKING:
    from rich.table import Table

_GAP = "  "
# Lines longer than the terminal are continued by the terminal, so that names can be copied as a whole.
UNLIMITED_WIDTH = 100_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Numbers are aligned to the right."""

    title: str
    align: Literal["left", "right"] = "left"
    style: str = ""


Row = Sequence[str]


def print_table(columns: Sequence[Column | str], rows: Sequence[Row]) -> None:
    """Print a table with a header to stdout. Cells are printed without their control sequences."""
    if has_color(sys.stdout):
        rich_console(sys.stdout, width=UNLIMITED_WIDTH).print(rich_table(columns, rows))
        return
    for line in table_lines(columns, rows):
        click.echo(line)


def rich_table(columns: Sequence[Column | str], rows: Sequence[Row]) -> "Table":
    """Return a table as rich draws it: without lines, with emphasized titles."""
    from rich.table import Table

    table = Table(box=None, padding=(0, len(_GAP), 0, 0), pad_edge=False, header_style="bold")
    for column in _to_columns(columns):
        table.add_column(styled(column.title), justify=column.align, style=column.style, no_wrap=True)
    for row in rows:
        table.add_row(*(styled(cell) for cell in row))
    return table


def table_lines(columns: Sequence[Column | str], rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table without emphasis."""
    described = _to_columns(columns)
    cells = [[column.title for column in described], *([inert(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        aligned = (
            cell.rjust(width) if column.align == "right" else cell.ljust(width)
            for cell, width, column in zip(row, widths, described, strict=True)
        )
        yield _GAP.join(aligned).rstrip()


def _to_columns(columns: Sequence[Column | str]) -> list[Column]:
    return [column if isinstance(column, Column) else Column(column) for column in columns]
