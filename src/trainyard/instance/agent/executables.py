"""The programs that a job finds in its environment."""

import os
from collections.abc import Sequence
from pathlib import Path

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def find_executable(name: str, environments: Sequence[tuple[Path, str]]) -> str | None:
    """Where a program finds it, in the first of these folders that has it or on the system's path; None in neither.

    Each folder is given as the agent sees it and as the program does, whose view of the system is the agent's.
    """
    for folder, seen_as in (*environments, *((Path(folder), folder) for folder in SYSTEM_PATH)):
        if os.access(folder / name, os.X_OK):
            return f"{seen_as}/{name}"
    return None
