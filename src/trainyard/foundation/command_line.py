"""Changes the command line under which a forked process is listed."""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path


def show_command(words: Sequence[str]) -> None:
    """Overwrite the command line of this process, for tools that list processes. It is cut off if it does not fit."""
    try:
        fields = Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()
        first, end = int(fields[45]), int(fields[46])
        shown = b"\0".join(map(os.fsencode, words))[: end - first - 1]
        ctypes.memmove(first, shown.ljust(end - first, b"\0"), end - first)
    except (OSError, ValueError, IndexError):
        # The process is then listed under its parent's command line.
        return
