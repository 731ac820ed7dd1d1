"""Control groups that exist: to enter, read, empty and remove them. `limits.py` makes them."""

import os
import time

from trainyard.instance.sandbox.signals import KILL

_PAUSE_S = 0.002
_OOM_FILES = ("memory.events", "memory.oom_control")  # of v2 and of v1


def move(pid: int, folders: list[str]) -> None:
    """Move a process, 0 being the caller. The first in a while takes some 10 ms, and no process can fork meanwhile."""
    for folder in folders:
        descriptor = os.open(f"{folder}/cgroup.procs", os.O_WRONLY)
        try:
            os.write(descriptor, str(pid).encode())
        finally:
            os.close(descriptor)


def members(folders: list[str]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        found.update(int(pid) for pid in _read(f"{folder}/cgroup.procs").split())
    return found


def oom_kills(folders: list[str]) -> int:
    """How many processes the kernel ended because the group had no memory left."""
    lines = [line for folder in folders for name in _OOM_FILES for line in _read(f"{folder}/{name}").splitlines()]
    return max((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), default=0)


def empty(folders: list[str], *, timeout_s: float) -> bool:
    """Kill until nobody is left, whatever session a process has moved to; False when time runs out."""
    deadline = time.monotonic() + timeout_s
    while alive := members(folders):
        if time.monotonic() > deadline:
            return False
        for pid in alive:
            try:
                os.kill(pid, KILL)
            except ProcessLookupError:
                continue
        time.sleep(_PAUSE_S)
    return True


def remove(folders: list[str], *, timeout_s: float) -> bool:
    """Remove the groups, which the kernel allows only when they are empty: True proves that nobody is left in them."""
    deadline = time.monotonic() + timeout_s
    for folder in folders:
        while not _removed(folder):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
    return True


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""  # not a file of this kind of group, or the group is gone
