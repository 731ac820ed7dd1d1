"""Clearing away what an instance made, once its agent is dead."""

import contextlib
import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

from trainyard.engines.local.processes import Deadline, empty_group, kill, wait_for_end
from trainyard.foundation import confined
from trainyard.foundation.errors import Unavailable
from trainyard.link.containers import remove_containers, take_back
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Entry, Ledger, LedgerKind
from trainyard.link.presence import Presence

_DETACH = 2  # MNT_DETACH
_OCTAL = re.compile(rb"\\([0-7]{3})")


def sweep_instance(folder: InstanceFolder, deadline: Deadline) -> None:
    """End and remove all that the ledger names, the newest first, and the folders that only a running job needs.

    Unavailable when something resists; what is gone by then need not be asked for again. All is tried all the same: a
    process may wait for another one, which serves its files, and can end only after that.
    """
    resisting: list[Unavailable] = []
    for entry in reversed(Ledger(folder.ledger).entries()):
        try:
            _SWEEPERS[entry.kind](entry, deadline)
        except Unavailable as error:
            resisting.append(error)
    if resisting:
        raise resisting[0]
    for unneeded in (folder.ml, folder.scratch, folder.channels, folder.launch):
        remove_tree(unneeded)


def remove_tree(folder: Path) -> None:
    """Remove a folder in which a job could do what it liked; refused while something is mounted there."""
    while folder.exists():
        mounted = [mount for mount in _mounts() if mount.is_relative_to(folder.resolve())]
        if mounted:
            raise Unavailable(f"{mounted[0]} is still mounted, so {folder} is not removed.")
        with contextlib.suppress(FileNotFoundError):  # another does the same, such as the warden of a lease
            confined.remove_tree(folder)


def _end_process(entry: Entry, deadline: Deadline) -> None:
    process = Presence(entry.details["pid"], entry.details["started"])
    kill(process)
    if not wait_for_end(process, deadline):
        raise Unavailable(f"Process {process.pid} does not end.")


def _outlast_keeper(entry: Entry, deadline: Deadline) -> None:
    """Wait for it, because it must not be disturbed while it makes something; one that does not end is killed."""
    process = Presence(entry.details["pid"], entry.details["started"])
    if not wait_for_end(process, Deadline(deadline.left_s / 2)):
        _end_process(entry, deadline)


def _remove_containers(entry: Entry, deadline: Deadline) -> None:
    tool, instance = entry.details["tool"], Path(entry.details["instance"])
    remove_containers(tool, instance, within_s=deadline.left_s)
    take_back(tool, InstanceFolder(instance).ml)


def _empty_group(entry: Entry, deadline: Deadline) -> None:
    empty_group(Path(entry.details["path"]), deadline)


def _unmount(entry: Entry, _: Deadline) -> None:
    path = Path(entry.details["path"])
    libc = ctypes.CDLL(None, use_errno=True)
    while path in _mounts():
        if libc.umount2(os.fsencode(path), _DETACH):
            raise Unavailable(f"{path} cannot be unmounted: {os.strerror(ctypes.get_errno())}.")


def _remove_folder(entry: Entry, _: Deadline) -> None:
    remove_tree(Path(entry.details["path"]))


_SWEEPERS: dict[LedgerKind, Callable[[Entry, Deadline], None]] = {
    LedgerKind.PROCESS: _end_process,
    LedgerKind.CGROUP: _empty_group,
    LedgerKind.MOUNT: _unmount,
    LedgerKind.FOLDER: _remove_folder,
    LedgerKind.CONTAINER: _remove_containers,
    LedgerKind.KEEPER: _outlast_keeper,
}


def _mounts() -> list[Path]:
    """Where something is mounted; mountinfo writes spaces and the like as octal numbers."""
    fields = [line.split(b" ")[4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines()]
    return [Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field))) for field in fields]
