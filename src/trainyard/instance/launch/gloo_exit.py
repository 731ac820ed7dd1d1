"""Delays the exit of a Python process until its gloo threads have released their last tensors.

For the script a collective is over as soon as its result is there. The thread that ran it drops its tensors a moment
later, and takes the GIL for those that Python knows. If the interpreter is already shutting down, it ends that thread,
and C++ aborts with `terminate called without an active exception`. On a busy machine that moment is long, and a script
that has finished its work is aborted. Destroying the process group helps only if nothing else, such as
DistributedDataParallel, holds it. (Seen with torch 2.13; see pytorch/pytorch, pull 179291.)
"""

import atexit
import os
import sys
import time
from typing import Any

_GLOO_THREAD = "pt_gloo_runloop"
_QUIET_CHECKS = 3
_PAUSE_S = 0.005
# With a CPU quota, a thread may have to wait for several periods.
_MAX_WAIT_S = 2.0
_TASKS = "/proc/self/task"


def wait_for_gloo_at_exit() -> None:
    """Register the wait. Exit functions run in reverse order, so this one runs after all that are registered later."""
    atexit.register(_wait_for_gloo)


def _wait_for_gloo() -> None:
    """Wait until no gloo thread is runnable. A thread that waits for another rank does not count."""
    distributed: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None:
        return
    threads = _gloo_threads(distributed)
    until = time.monotonic() + _MAX_WAIT_S
    quiet = 0
    while threads and quiet < _QUIET_CHECKS and time.monotonic() < until:
        quiet = 0 if any(map(_is_runnable, threads)) else quiet + 1
        # Releases the GIL for the threads.
        time.sleep(_PAUSE_S)


def _gloo_threads(distributed: Any) -> list[str]:
    """Return the gloo threads. Before torch 2.6 they had no name, so any thread but this one could be one."""
    others = [task for task in _tasks() if task != str(os.getpid())]
    named = [task for task in others if _read_task(task, "comm").startswith(_GLOO_THREAD)]
    return named or (others if _uses_gloo(distributed) else [])


def _uses_gloo(distributed: Any) -> bool:
    try:
        return distributed.is_initialized() and "gloo" in str(distributed.get_backend())
    except Exception:
        # A future torch may lack these functions.
        return False


def _is_runnable(task: str) -> bool:
    """Return whether a thread runs or is ready to, which includes one that has used up its CPU quota."""
    return _read_task(task, "stat").rpartition(")")[2].split()[:1] == ["R"]


def _tasks() -> list[str]:
    try:
        return os.listdir(_TASKS)
    except OSError:
        return []


def _read_task(task: str, file: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/{file}", encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:
        # The thread has ended.
        return ""
