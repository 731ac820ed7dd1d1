"""The beginning and end of the process that the hook lives in: forks have no hook, and an end is written down."""

import atexit
import contextlib
import os
import threading
import weakref
from typing import Protocol


class Lives(Protocol):
    """Something that ends with the process, and that a fork must not carry on."""

    def close(self) -> None: ...

    def forget(self) -> None:
        """This is a child process now: the threads are gone, and the files are the parent's."""


def bind(living: Lives) -> None:
    """Close it when the process ends, and have it forgotten in every fork."""
    _living.add(living)
    if not _is_bound:
        _bind_process()


def release(living: Lives) -> None:
    _living.discard(living)


_living: "weakref.WeakSet[Lives]" = weakref.WeakSet()
_is_bound: list[bool] = []


def _bind_process() -> None:
    _is_bound.append(True)
    os.register_at_fork(after_in_child=_forget_all)
    atexit.register(_close_all)
    # A warm worker ends at once when no thread is left, and takes as long as a cold one otherwise. Exit functions of
    # `threading` run before it looks, those of `atexit` after.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):  # the interpreter is ending already
            register(_close_if_alone)


def _close_if_alone() -> None:
    """Unless other threads of the program still run, which may be training."""
    main = threading.main_thread()
    if all(thread.daemon or thread is main for thread in threading.enumerate()):
        _close_all()


def _close_all() -> None:
    for living in list(_living):
        with contextlib.suppress(Exception):
            living.close()


def _forget_all() -> None:
    for living in list(_living):
        with contextlib.suppress(Exception):
            living.forget()
    _living.clear()
