"""Warm workers: interpreters that wait with a framework imported, and fork the programs of one user's jobs.

Each has a folder of its own, `<home>/warm/<account>/<key>/`, that only the yard can enter:

    lock           held by the worker as long as it lives, from before its first import
    worker.json    what it is, written when it serves; by its time, when it was last used
    refused.json   why there is none: written in its place by one that could not be trusted or did not import
    leave          asks one that does not serve yet to end instead
    socket         where it takes requests, one packet each, and answers with one

Whoever asks for a fork sends descriptors along: see instance/warm. Anybody of the yard may list workers, tell
them to stay longer and tell them to leave. A worker that leaves takes no more requests, and ends when the programs that
it forked have ended.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.foundation.files import PRIVATE_FILE
from trainyard.link import holds
from trainyard.link.presence import Presence

FORK, KEEP, LEAVE = "fork", "keep", "leave"
MOST_BYTES = 4096  # of a packet
_ANSWER_S = 1.0  # a worker does nothing but answer, so one that takes longer is stuck


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """The layout of a worker's folder. Making one of these touches nothing."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def description(self) -> Path:
        return self.root / "worker.json"

    @property
    def refusal(self) -> Path:
        return self.root / "refused.json"

    @property
    def leave(self) -> Path:
        return self.root / "leave"

    @property
    def socket(self) -> Path:
        return self.root / "socket"

    @property
    def log(self) -> Path:
        return self.root / "log"


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """One that serves, or did so until it was killed. `facts` is all that it wrote of itself."""

    folder: WorkerFolder
    account: str
    python: str
    presence: Presence
    last_used: datetime
    facts: Mapping[str, Any]

    @property
    def pid(self) -> int:
        return self.presence.pid

    @property
    def is_alive(self) -> bool:
        return self.presence.is_alive

    @property
    def memory_bytes(self) -> int:
        """Its memory, with what it shares divided among those that share it; 0 when it is gone."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        return 0


def warm_workers(warm: Path) -> list[WarmWorker]:
    """Those of all accounts that live, the last used first; `warm` is the folder of the yard that holds them."""
    found = [worker for folder in _folders(warm) if (worker := read_worker(folder)) is not None and worker.is_alive]
    return sorted(found, key=lambda worker: worker.last_used, reverse=True)


def read_worker(folder: WorkerFolder) -> WarmWorker | None:
    """The worker that described itself in a folder, alive or not; None when none did."""
    try:
        facts = json.loads(folder.description.read_bytes())
        used = datetime.fromtimestamp(folder.description.stat().st_mtime, UTC)
        presence = Presence(facts["pid"], facts["started"])
        return WarmWorker(folder, folder.root.parent.name, facts["python"], presence, used, facts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tell_to_leave(folder: WorkerFolder) -> None:
    """Have the worker of a folder end, now or as soon as it would serve; nothing happens when there is none."""
    with suppress(OSError):
        if is_held(folder):
            folder.leave.touch(PRIVATE_FILE)  # first, since it may be about to serve
            ask(folder, {"do": LEAVE})


def leave_all(warm: Path, account: str | None = None) -> None:
    """Tell all workers to leave, or all of one account."""
    for folder in _folders(warm):
        if account is None or folder.root.parent.name == account:
            tell_to_leave(folder)


def keep_all(warm: Path, account: str, *, seconds: int) -> None:
    """Have all workers of an account stay for at least so long after their last program."""
    for folder in _folders(warm):
        if folder.root.parent.name == account and is_held(folder):
            with suppress(OSError):  # one that leaves meanwhile cannot be kept
                ask(folder, {"do": KEEP, "keep_s": seconds})


def dead_folders(warm: Path) -> list[Path]:
    """What workers left behind that are no more."""
    return [folder.root for folder in _folders(warm) if not is_held(folder)]


def sweep(warm: Path) -> None:
    """Remove what workers left behind, unless one begins in the same folder at this moment."""
    for root in dead_folders(warm):
        folder = WorkerFolder(root)
        descriptor = hold(folder)
        if descriptor is not None:
            shutil.rmtree(root, ignore_errors=True)
            os.close(descriptor)


def hold(folder: WorkerFolder) -> int | None:
    """Take the lock of a worker, whose descriptor is to be kept open; None when another has it or its folder goes."""
    with suppress(FileNotFoundError):
        return holds.hold(folder.lock)
    return None


def is_held(folder: WorkerFolder) -> bool:
    """Whether a worker lives in the folder, serving or not yet."""
    return holds.is_held(folder.lock)


def ask(
    folder: WorkerFolder, request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> tuple[dict[str, Any], list[int]]:
    """Send a request and take the answer with its descriptors; OSError when none comes at once."""
    with _address(folder.root) as address, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
        data, received, _, _ = socket.recv_fds(connection, MOST_BYTES, 4)
        for descriptor in received:  # the flag that would do this is not passed on by Python 3.11
            os.set_inheritable(descriptor, False)
    if not data:
        raise ConnectionResetError(f"the warm worker in {folder.root} did not answer")
    return json.loads(data), received


@contextmanager
def _address(root: Path) -> Iterator[str]:
    """The path of the socket, short enough for the kernel wherever the yard's home is."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def _folders(warm: Path) -> list[WorkerFolder]:
    return [WorkerFolder(path) for account in _subfolders(warm) for path in _subfolders(account)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:  # nothing was ever made there, or it is being swept
        return []
