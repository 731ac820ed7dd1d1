"""Ends processes that are not our children, and proves that they ended."""

import contextlib
import errno
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.foundation.errors import Unavailable
from trainyard.link.agent_process import ProcessIdentity

_POLL_INTERVAL_S = 0.005


class Deadline:
    """A point in time that several waits share."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - time.monotonic())


def kill(process: ProcessIdentity) -> None:
    """Send SIGKILL to that very process. Does nothing if it is gone."""
    with _open_pidfd(process) as descriptor:
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def wait_for_end(process: ProcessIdentity, deadline: Deadline) -> bool:
    """Whether the process ends before the deadline."""
    with _open_pidfd(process) as descriptor:
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(deadline.left_s * 1000))


def kill_cgroup(folder: Path, deadline: Deadline) -> None:
    """Kill every process in a cgroup and the cgroups below it, and remove them. Raises Unavailable if one does not end.

    Another process may do the same at the same time.
    """
    groups = _groups_below(folder)
    for group in groups:
        while pids := _members(group):
            _kill_members(group, pids)
            if not deadline.left_s:
                raise Unavailable(f"Processes {', '.join(map(str, pids))} in {group} do not end.")
            time.sleep(_POLL_INTERVAL_S)
    for group in reversed(groups):
        _remove_group(group, deadline)


@contextlib.contextmanager
def _open_pidfd(process: ProcessIdentity) -> Iterator[int | None]:
    """Yield a descriptor of that very process, not of a later one with the same pid; None if it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Checked after opening: if the process is still alive, the descriptor is its own.
        yield descriptor if process.is_alive else None
    finally:
        os.close(descriptor)


def _groups_below(folder: Path) -> list[Path]:
    """The folder and those below it, parents first; empty if it does not exist."""
    return [Path(parent) for parent, _, _ in os.walk(folder)]


def _members(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError as error:
        # Removed before it was opened, or after.
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return []
        raise


def _kill_members(group: Path, pids: Sequence[int]) -> None:
    with contextlib.suppress(OSError):
        # Only v2 has this. It kills all at once, so that a fork bomb cannot outrun it.
        (group / "cgroup.kill").write_text("1")
        return
    for pid in pids:
        _kill_member(group, pid)


def _kill_member(group: Path, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # Otherwise another process may have the pid by now.
            if pid in _members(group):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _remove_group(group: Path, deadline: Deadline) -> None:
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            # The kernel releases the last process a moment after it is gone from the list.
            if not deadline.left_s:
                raise Unavailable(f"The control group {group} cannot be removed: {error.strerror}.") from error
            time.sleep(_POLL_INTERVAL_S)
        else:
            return
