"""Progress on stderr: bars for transfers, and spinners with the elapsed time. Without a terminal, nothing is drawn."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.cli.terminal.drawing import is_terminal, rich_console, styled

# Fewer things are done before a bar would be seen.
_MIN_COUNTED = 10


@contextlib.contextmanager
def transfer_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Draw the progress of a transfer: bytes, rate and the time left. The bar disappears at the end.

    Call the yielded function with the bytes that have been transferred and with the total, in any thread.
    """
    if not is_terminal(sys.stderr):
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=rich_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(styled(title).plain, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def spinner(title: str) -> Iterator[None]:
    """Draw a spinner with the elapsed time while the block runs. It disappears at the end."""
    if not is_terminal(sys.stderr):
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=rich_console(sys.stderr), transient=True) as progress:
        progress.add_task(styled(title).plain, total=None)
        yield


@contextlib.contextmanager
def count_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Draw how many of many things are done. Call the yielded function for each; the bar disappears at the end."""
    if total < _MIN_COUNTED or not is_terminal(sys.stderr):
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=rich_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
