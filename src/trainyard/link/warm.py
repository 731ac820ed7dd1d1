"""Warm workers: interpreters that wait with a framework imported, and fork the programs of one user's jobs.

Each has a folder of its own, `<home>/warm/<account>/<key>/`, that only the yard can enter:

    lock           held by the worker as long as it lives, from before its first import
    worker.json    its description, written when it serves; the modification time says when it was last used
    refused.json   written instead by a worker that cannot be trusted or failed to import; says why, and whether that
                   is a fault that an operator should look at
    log            what a worker printed, and the traceback if it failed
    leave          asks a worker that does not serve yet to exit instead
    socket         where it takes requests, one packet each, and answers with one

A request for a fork carries descriptors: see instance/warm. The yard may list workers, and tell them to stay longer or
to leave. A worker that leaves takes no more requests, and exits when the programs that it forked have ended.
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
from trainyard.link import file_locks
from trainyard.link.agent_process import ProcessIdentity

FORK, KEEP, LEAVE = "fork", "keep", "leave"
MAX_PACKET_BYTES = 4096
# A worker does nothing but answer, so one that takes longer is stuck.
_ANSWER_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """The layout of a worker's folder. Creating one of these touches nothing."""

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
    """A worker that serves, or did so until it was killed. `facts` is its own description."""

    folder: WorkerFolder
    account: str
    python: str
    presence: ProcessIdentity
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
        """Its proportional set size: shared memory is divided among those that share it. 0 if the worker is gone."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
        return 0


def warm_workers(warm: Path) -> list[WarmWorker]:
    """Return the live workers of all accounts, last used first. `warm` is the yard's folder for them."""
    found = [worker for folder in _folders(warm) if (worker := read_worker(folder)) is not None and worker.is_alive]
    return sorted(found, key=lambda worker: worker.last_used, reverse=True)


def read_worker(folder: WorkerFolder) -> WarmWorker | None:
    """Return the worker that described itself in a folder, alive or not; None if none did."""
    try:
        facts = json.loads(folder.description.read_bytes())
        used = datetime.fromtimestamp(folder.description.stat().st_mtime, UTC)
        presence = ProcessIdentity(facts["pid"], facts["started"])
        return WarmWorker(folder, folder.root.parent.name, facts["python"], presence, used, facts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def dismiss_worker(folder: WorkerFolder) -> None:
    """Tell the worker in a folder to exit, now or as soon as it would serve. Does nothing if there is none."""
    with suppress(OSError):
        if is_worker_running(folder):
            # First, because it may be about to serve.
            folder.leave.touch(PRIVATE_FILE)
            send_request(folder, {"do": LEAVE})


def dismiss_workers(warm: Path, account: str | None = None) -> None:
    """Tell all workers to exit, or all of one account."""
    for folder in _folders(warm):
        if account is None or folder.root.parent.name == account:
            dismiss_worker(folder)


def extend_workers(warm: Path, account: str, *, seconds: int) -> None:
    """Let all workers of an account stay for at least that long after their last program."""
    for folder in _folders(warm):
        if folder.root.parent.name == account and is_worker_running(folder):
            # The worker may be leaving.
            with suppress(OSError):
                send_request(folder, {"do": KEEP, "keep_s": seconds})


def read_faults(warm: Path) -> list[str]:
    """Return why workers failed to start although they should have."""
    return [fault for folder in _folders(warm) if (fault := _read_fault(folder))]


def dead_folders(warm: Path) -> list[Path]:
    """Return the folders of workers that are gone."""
    return [folder.root for folder in _folders(warm) if not is_worker_running(folder)]


def sweep_dead_workers(warm: Path) -> None:
    """Remove the folders of workers that are gone, unless another starts in one at this moment."""
    for root in dead_folders(warm):
        folder = WorkerFolder(root)
        descriptor = hold_worker(folder)
        if descriptor is not None:
            shutil.rmtree(root, ignore_errors=True)
            os.close(descriptor)


def hold_worker(folder: WorkerFolder) -> int | None:
    """Lock a worker's folder. Return the descriptor to keep open; None if another holds it or the folder is removed."""
    with suppress(FileNotFoundError):
        return file_locks.hold(folder.lock)
    return None


def is_worker_running(folder: WorkerFolder) -> bool:
    """Whether a worker runs in the folder, serving or not yet."""
    return file_locks.is_held(folder.lock)


def send_request(
    folder: WorkerFolder, request: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> tuple[dict[str, Any], list[int]]:
    """Send a request and return the answer with its descriptors. Raises OSError if there is none in time."""
    with _address(folder.root) as address, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], descriptors)
        data, received, _, _ = socket.recv_fds(connection, MAX_PACKET_BYTES, 4)
        # Python 3.11 does not pass on the flag that would do this.
        for descriptor in received:
            os.set_inheritable(descriptor, False)
    if not data:
        raise ConnectionResetError(f"the warm worker in {folder.root} did not answer")
    return json.loads(data), received


@contextmanager
def _address(root: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the kernel wherever the yard's home is."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def _read_fault(folder: WorkerFolder) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads(folder.refusal.read_bytes())
        return str(facts["why"]) if facts.get("fault") and not is_worker_running(folder) else ""
    return ""


def _folders(warm: Path) -> list[WorkerFolder]:
    return [WorkerFolder(path) for account in _subfolders(warm) for path in _subfolders(account)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        # Nothing was ever made there, or it is being swept.
        return []
