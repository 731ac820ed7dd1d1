"""The process tree, read from /proc."""

import os
import time

from trainyard.instance.sandbox.signals import KILL, STOP

_PAUSE_S = 0.002


def descendants(root: int) -> list[int]:
    """Return all processes below `root`, parents first. Orphans are included if `root` adopts them."""
    found: list[int] = []
    pending = [root]
    while pending:
        children = _children(pending.pop())
        found.extend(children)
        pending.extend(children)
    return found


def kill_descendants(*, timeout_s: float) -> bool:
    """Kill everything below this process, which adopts orphans; return True once the kernel says that none is left.

    All are stopped before they are killed, so that none can fork while its siblings die.
    """
    deadline = time.monotonic() + timeout_s
    while not _has_no_children():
        if time.monotonic() > deadline:
            return False
        _stop_all()
        for pid in descendants(os.getpid()):
            _signal(pid, KILL)
        time.sleep(_PAUSE_S)
    return True


def reap_others(pid: int) -> None:
    """Reap the children that have ended, except `pid`."""
    for child in _children(os.getpid()):
        if child != pid:
            os.waitpid(child, os.WNOHANG)


def proportional_memory(pid: int) -> int:
    """Return the memory in bytes, with shared pages divided among their users; 0 if the process is gone."""
    for line in _lines(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def resident_memory(pid: int) -> int:
    """Return the memory in bytes, with shared pages counted in full: cheap, and never below the proportional size."""
    for line in _lines(f"/proc/{pid}/statm"):
        return int(line.split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def cpu_ticks(pid: int) -> int:
    """Return the CPU time of a process and of its reaped children, in clock ticks; 0 if it is gone."""
    for line in _lines(f"/proc/{pid}/stat"):
        return sum(map(int, line.rpartition(")")[2].split()[11:15]))
    return 0


def _stop_all() -> None:
    stopped: set[int] = set()
    while fresh := set(descendants(os.getpid())) - stopped:
        for pid in fresh:
            _signal(pid, STOP)
        stopped |= fresh


def _has_no_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _children(pid: int) -> list[int]:
    """Return the children. The kernel lists them per thread that made them."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    lines = [line for thread in threads for line in _lines(f"/proc/{pid}/task/{thread}/children")]
    return [int(child) for line in lines for child in line.split()]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
