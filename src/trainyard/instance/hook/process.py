"""Ties hooks to their process: a process that ends closes its hooks, and a forked child drops them."""

import atexit
import contextlib
import os
import threading
import weakref
from typing import Protocol


class ProcessBound(Protocol):
    """Something that must be closed when the process ends and dropped in a fork."""

    def close(self) -> None: ...

    def forget(self) -> None:
        """Drop everything without writing: in a forked child the threads are gone and the files are the parent's."""


def bind(member: ProcessBound) -> None:
    """Close `member` when the process ends, and make every forked child forget it."""
    _members.add(member)
    if not _is_bound:
        _bind_process()


def release(member: ProcessBound) -> None:
    _members.discard(member)


_members: "weakref.WeakSet[ProcessBound]" = weakref.WeakSet()
_is_bound: list[bool] = []


def _bind_process() -> None:
    _is_bound.append(True)
    os.register_at_fork(after_in_child=_forget_all)
    atexit.register(_close_all)
    # A warm worker ends at once if no thread is left, and otherwise as slowly as a cold one. It looks after the exit
    # functions of `threading` have run, but before those of `atexit`.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        # Raised if the interpreter is already shutting down.
        with contextlib.suppress(RuntimeError):
            register(_close_if_alone)


def _close_if_alone() -> None:
    """Close all members, unless other threads of the program still run: they may be training."""
    main = threading.main_thread()
    if all(thread.daemon or thread is main for thread in threading.enumerate()):
        _close_all()


def _close_all() -> None:
    for member in list(_members):
        with contextlib.suppress(Exception):
            member.close()


def _forget_all() -> None:
    for member in list(_members):
        with contextlib.suppress(Exception):
            member.forget()
    _members.clear()
