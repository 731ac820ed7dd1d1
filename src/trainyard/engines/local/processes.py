"""Ending processes that are not our children, and being sure of it."""

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.foundation.errors import Unavailable
from trainyard.link.presence import Presence

_PAUSE_S = 0.005


class Deadline:
    """A moment that several waits share."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - time.monotonic())


def kill(process: Presence) -> None:
    """Send SIGKILL to that very process; nothing happens when it is gone."""
    with _opened(process) as descriptor:
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def wait_for_end(process: Presence, deadline: Deadline) -> bool:
    """Whether the process ends before the deadline."""
    with _opened(process) as descriptor:
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(deadline.left_s * 1000))


def empty_group(folder: Path, deadline: Deadline) -> None:
    """Kill every process of a control group and of those below it, and remove them; Unavailable when one lives on.

    Somebody else may do the same at the same time.
    """
    groups = _with_those_below(folder)
    for group in groups:
        while pids := _members(group):
            _kill_members(group, pids)
            if not deadline.left_s:
                raise Unavailable(f"Processes {', '.join(map(str, pids))} in {group} do not end.")
            time.sleep(_PAUSE_S)
    for group in reversed(groups):
        _remove_group(group, deadline)


@contextlib.contextmanager
def _opened(process: Presence) -> Iterator[int | None]:
    """A descriptor of that very process, which no later process of the same pid can take over."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Asked after opening: if it is still the one, the descriptor is its own.
        yield descriptor if process.is_alive else None
    finally:
        os.close(descriptor)


def _with_those_below(folder: Path) -> list[Path]:
    """Parents before their children; none that does not exist."""
    return [Path(parent) for parent, _, _ in os.walk(folder)]


def _members(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):  # removed before it was opened, or after
            return []
        raise


def _kill_members(group: Path, pids: Sequence[int]) -> None:
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")  # v2 only; all at once, so that a fork bomb cannot outrun it
        return
    for pid in pids:
        _kill_member(group, pid)


def _kill_member(group: Path, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            if pid in _members(group):  # otherwise the pid may be another's by now
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _remove_group(group: Path, deadline: Deadline) -> None:
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:  # the kernel lets go of the last process a moment after it is gone from the list
            if not deadline.left_s:
                raise Unavailable(f"The control group {group} cannot be removed: {error.strerror}.") from error
            time.sleep(_PAUSE_S)
        else:
            return
