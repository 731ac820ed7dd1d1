"""The programs that a job finds in its environment."""

import os
from pathlib import Path

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def find_executable(name: str, environment: Path) -> str | None:
    """Where a program finds it, whose view of the system is the agent's: in this folder or on the system's path."""
    places = [f"{folder}/{name}" for folder in (environment, *SYSTEM_PATH)]
    return next((place for place in places if os.access(place, os.X_OK)), None)
