"""Clears away what an instance made, once its agent is dead."""

import contextlib
import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

from trainyard.engines.local.processes import Deadline, kill, kill_cgroup, wait_for_end
from trainyard.foundation import confined
from trainyard.foundation.errors import Unavailable
from trainyard.link.agent_process import ProcessIdentity
from trainyard.link.containers import reclaim_files, remove_containers
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerEntry, LedgerKind

_MNT_DETACH = 2
_OCTAL = re.compile(rb"\\([0-7]{3})")


def sweep_instance(folder: InstanceFolder, deadline: Deadline) -> None:
    """End and remove everything in the ledger, newest first, and the folders that only a running job needs.

    Every entry is tried even if one fails: a process may wait for another that serves its files, and can end only after
    that. Raises Unavailable if something failed; call again.
    """
    failures: list[Unavailable] = []
    for entry in reversed(Ledger(folder.ledger).entries()):
        try:
            _SWEEPERS[entry.kind](entry, deadline)
        except Unavailable as error:
            failures.append(error)
    if failures:
        raise failures[0]
    for unneeded in (folder.ml, folder.scratch, folder.channels, folder.launch):
        remove_tree(unneeded)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a job could write to. Raises Unavailable while something is mounted there."""
    while folder.exists():
        mounted = [mount for mount in _mounts() if mount.is_relative_to(folder.resolve())]
        if mounted:
            raise Unavailable(f"{mounted[0]} is still mounted, so {folder} is not removed.")
        # Another process may remove it too, such as the watchdog of a lease.
        with contextlib.suppress(FileNotFoundError):
            confined.remove_tree(folder)


def _end_process(entry: LedgerEntry, deadline: Deadline) -> None:
    process = ProcessIdentity(entry.details["pid"], entry.details["started"])
    kill(process)
    if not wait_for_end(process, deadline):
        raise Unavailable(f"Process {process.pid} does not end.")


def _wait_for_keeper(entry: LedgerEntry, deadline: Deadline) -> None:
    """Wait for it to end, because it must not be interrupted while it sets up a sandbox; then kill it."""
    process = ProcessIdentity(entry.details["pid"], entry.details["started"])
    if not wait_for_end(process, Deadline(deadline.left_s / 2)):
        _end_process(entry, deadline)


def _remove_containers(entry: LedgerEntry, deadline: Deadline) -> None:
    tool, instance = entry.details["tool"], Path(entry.details["instance"])
    remove_containers(tool, instance, within_s=deadline.left_s)
    reclaim_files(tool, InstanceFolder(instance).ml)


def _kill_group(entry: LedgerEntry, deadline: Deadline) -> None:
    kill_cgroup(Path(entry.details["path"]), deadline)


def _unmount(entry: LedgerEntry, _: Deadline) -> None:
    path = Path(entry.details["path"])
    libc = ctypes.CDLL(None, use_errno=True)
    while path in _mounts():
        if libc.umount2(os.fsencode(path), _MNT_DETACH):
            raise Unavailable(f"{path} cannot be unmounted: {os.strerror(ctypes.get_errno())}.")


def _remove_folder(entry: LedgerEntry, _: Deadline) -> None:
    remove_tree(Path(entry.details["path"]))


_SWEEPERS: dict[LedgerKind, Callable[[LedgerEntry, Deadline], None]] = {
    LedgerKind.PROCESS: _end_process,
    LedgerKind.CGROUP: _kill_group,
    LedgerKind.MOUNT: _unmount,
    LedgerKind.FOLDER: _remove_folder,
    LedgerKind.CONTAINER: _remove_containers,
    LedgerKind.SUPERVISOR: _wait_for_keeper,
}


def _mounts() -> list[Path]:
    """The current mount points. mountinfo writes spaces and the like as octal numbers."""
    fields = [line.split(b" ")[4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    return [Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field))) for field in fields]
