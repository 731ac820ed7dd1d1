"""The writers of this process, by the folders they write to.

A writer keeps steps in memory for a moment. A reader in the same process asks it to write them first, so that it sees
every step that has finished.
"""

import os
import weakref
from pathlib import Path
from typing import Protocol


class LiveWriter(Protocol):
    """Writes a trial that is not finished."""

    def flush(self) -> None:
        """Write every finished step, and return when that is done. Any thread may call it. Never raises."""
        ...


def add_writer(folder: Path, writer: LiveWriter) -> None:
    """Have `flush_writers` flush a writer, for as long as it exists."""
    _writers.setdefault(os.path.realpath(folder), weakref.WeakSet()).add(writer)


def remove_writer(folder: Path, writer: LiveWriter) -> None:
    """Remove a writer; one that was never added is ignored."""
    name = os.path.realpath(folder)
    members = _writers.get(name)
    if members is not None:
        members.discard(writer)
        if not members:
            _writers.pop(name, None)


def flush_writers(folder: Path) -> None:
    """Flush all writers of a folder in this process."""
    # Most readers have no writer in their process.
    if not _writers:
        return
    for writer in list(_writers.get(os.path.realpath(folder), ())):
        writer.flush()


_writers: "dict[str, weakref.WeakSet[LiveWriter]]" = {}
