"""Lets a Python process end in peace whose threads of gloo have not let go of their last tensors yet.

A collective is over for the script as soon as its result is there. The thread that ran it drops its tensors a moment
later, and takes the lock of the interpreter for those that Python knows. If the interpreter is being taken apart by
then, it ends that thread, which C++ answers with `terminate called without an active exception`. With little processor
time the moment is long, and a script that has done all it should is aborted. Destroying the group helps only where
nothing else holds it, as DistributedDataParallel does. (Seen with torch 2.13; see pytorch/pytorch, pull 179291.)
"""

import atexit
import os
import sys
import time
from typing import Any

_GLOO_THREAD = "pt_gloo_runloop"
_QUIET_LOOKS = 3
_PAUSE_S = 0.005
_LONGEST_S = 2.0  # with a quota, a thread may have to wait for the next periods of it
_TASKS = "/proc/self/task"


def settle_at_exit() -> None:
    """Give these threads the time they need, after all else that is done at exit: functions run in reverse order."""
    atexit.register(_settle)


def _settle() -> None:
    """Wait until none of them has anything to do. One that waits for another rank keeps nobody waiting."""
    distributed: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None:
        return
    threads = _gloo_threads(distributed)
    until = time.monotonic() + _LONGEST_S
    quiet = 0
    while threads and quiet < _QUIET_LOOKS and time.monotonic() < until:
        quiet = 0 if any(map(_is_runnable, threads)) else quiet + 1
        time.sleep(_PAUSE_S)  # they can have the lock of the interpreter meanwhile


def _gloo_threads(distributed: Any) -> list[str]:
    """Before they had a name of their own, which came with torch 2.6, any of those beside this one could be it."""
    others = [task for task in _tasks() if task != str(os.getpid())]
    named = [task for task in others if _read(task, "comm").startswith(_GLOO_THREAD)]
    return named or (others if _uses_gloo(distributed) else [])


def _uses_gloo(distributed: Any) -> bool:
    try:
        return distributed.is_initialized() and "gloo" in str(distributed.get_backend())
    except Exception:  # of a torch that has these no more
        return False


def _is_runnable(task: str) -> bool:
    """Whether it runs, or would if it were let: also one that has used up its quota."""
    return _read(task, "stat").rpartition(")")[2].split()[:1] == ["R"]


def _tasks() -> list[str]:
    try:
        return os.listdir(_TASKS)
    except OSError:
        return []


def _read(task: str, file: str) -> str:
    try:
        with open(f"{_TASKS}/{task}/{file}", encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:  # it has ended
        return ""
