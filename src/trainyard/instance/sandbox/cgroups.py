"""Enters, reads, empties and removes existing control groups. `limits.py` makes them."""

import os
import time

from trainyard.instance.sandbox.signals import KILL

_PAUSE_S = 0.002
# The first is from cgroup v2, the second from v1.
_OOM_FILES = ("memory.events", "memory.oom_control")


def move_process(pid: int, folders: list[str]) -> None:
    """Move a process into the groups; pid 0 is the caller.

    The first move after a while takes about 10 ms, during which no process on the machine can fork.
    """
    for folder in folders:
        descriptor = os.open(f"{folder}/cgroup.procs", os.O_WRONLY)
        try:
            os.write(descriptor, str(pid).encode())
        finally:
            os.close(descriptor)


def member_pids(folders: list[str]) -> set[int]:
    found: set[int] = set()
    for folder in folders:
        found.update(int(pid) for pid in _read_or_empty(f"{folder}/cgroup.procs").split())
    return found


def oom_kill_count(folders: list[str]) -> int:
    """Return how many processes the kernel killed because the group ran out of memory."""
    lines = [
        line for folder in folders for name in _OOM_FILES for line in _read_or_empty(f"{folder}/{name}").splitlines()
    ]
    return max((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), default=0)


def kill_members(folders: list[str], *, timeout_s: float) -> bool:
    """Kill until no process is left, whichever session it is in; return False when time runs out."""
    deadline = time.monotonic() + timeout_s
    while alive := member_pids(folders):
        if time.monotonic() > deadline:
            return False
        for pid in alive:
            try:
                os.kill(pid, KILL)
            except ProcessLookupError:
                continue
        time.sleep(_PAUSE_S)
    return True


def remove_cgroups(folders: list[str], *, timeout_s: float) -> bool:
    """Remove the groups. The kernel allows this only for empty groups, so True proves that no process is left."""
    deadline = time.monotonic() + timeout_s
    for folder in folders:
        while not _try_remove(folder):
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
    return True


def _try_remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read_or_empty(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        # This version of cgroups has no such file, or the group is gone.
        return ""
