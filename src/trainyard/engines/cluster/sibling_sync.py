"""Copies to a node what the agents there need from instances on other nodes.

The agent of the first instance packs the results of all instances, and looks for them next to its own folder. So their
spools are copied there, and their results before the frame that says they have ended. If rules are evaluated next to
the program, tensors are copied as well, while they are written. Every agent needs to know when the others were last
active, to decide whether the whole job hangs.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from trainyard.engines.cluster.contract import FileChunk
from trainyard.engines.cluster.folder_tar import unpack_folder
from trainyard.engines.cluster.mirror import apply_chunks
from trainyard.engines.cluster.tensor_sync import TensorCopy, needs_tensors
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder, InstanceRef
from trainyard.link.spec_queries import hang_limit_s, is_first_on_machine, remote_hosts
from trainyard.link.spool import decode_frame, read_frames

SPOOL, ACTIVITY = "spool", "activity"
# The folders of an instance whose content is packed.
RESULT_FOLDERS = ("ml/model", "ml/output/data")

# Calls `InstanceRunner.part` of an instance: its name, the path below its folder, and the offset.
Fetch = Callable[[str, str, int], bytes]

_SYNC_INTERVAL_S = 0.5
# Once the first instance waits for the others.
_FINAL_SYNC_INTERVAL_S = 0.05
_MAX_ACTIVITY_INTERVAL_S = 5.0
# As a fraction of the time after which a job hangs.
_ACTIVITY_INTERVAL_FRACTION = 0.1
# For one chunk, with a pause between them.
_FETCH_TRIES = 20
_EXIT_FRAMES = (FrameKind.EXITED, FrameKind.ENDED)

log = logging.getLogger(__name__)


class SiblingSync:
    """Runs in a thread until the instance here has ended. What fails is tried again.

    The node of the job's first instance gets everything from the others. Every other node gets only the activity of
    instances elsewhere, which the first instance knows.
    """

    def __init__(self, jobs: Path, spec: InstanceSpec, fetch: Fetch, *, is_over: Callable[[], bool]) -> None:
        own = InstanceRef.of(spec).folder(jobs)
        is_first = spec.instance == spec.hosts[0]
        self._exit_watch = _ExitWatch(own)
        self._activity = _ActivitySync(own.root.parent, spec, fetch)
        self._siblings = [
            _SiblingCopy(InstanceFolder(own.root.with_name(name)), fetch, has_tensors=needs_tensors(spec))
            for name in (remote_hosts(spec) if is_first else ())
        ]
        self._is_over = is_over
        self._thread = threading.Thread(target=self._run, name=f"sibling-sync-{spec.job_id}", daemon=True)

    @staticmethod
    def is_needed(spec: InstanceSpec) -> bool:
        return bool(remote_hosts(spec)) and is_first_on_machine(spec)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over():
            for sync in (self._activity.sync, *(sibling.sync for sibling in self._siblings)):
                try:
                    sync()
                except Exception as error:
                    # Clusters raise errors of their own when they do not reach a node.
                    log.info("a node cannot be reached", extra={"why": str(error)})
            time.sleep(
                _FINAL_SYNC_INTERVAL_S
                if self._siblings and self._exit_watch.has_exited()
                else min(_SYNC_INTERVAL_S, self._activity.interval_s)
            )


class _ActivitySync:
    """Copies when instances on other nodes were last active, as files in folders next to the instance's own."""

    def __init__(self, attempt: Path, spec: InstanceSpec, fetch: Fetch) -> None:
        self._attempt = attempt
        self._remote_hosts = remote_hosts(spec)
        self._sources = self._remote_hosts if spec.instance == spec.hosts[0] else spec.hosts[:1]
        self._fetch = fetch
        self._limit_s = hang_limit_s(spec)
        self._next = 0.0

    @property
    def interval_s(self) -> float:
        """Short enough that a time that passes through two nodes is still recent."""
        return min(self._limit_s * _ACTIVITY_INTERVAL_FRACTION, _MAX_ACTIVITY_INTERVAL_S) or _MAX_ACTIVITY_INTERVAL_S

    def sync(self) -> None:
        if not self._limit_s or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.interval_s
        for host in self._sources:
            for name, age_s in json.loads(self._fetch(host, ACTIVITY, 0)).items():
                if name in self._remote_hosts:
                    self._mark(InstanceFolder(self._attempt / name), time.time() - age_s)

    def _mark(self, folder: InstanceFolder, at: float) -> None:
        folder.root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        if not folder.activity.exists() or folder.activity.stat().st_mtime < at:
            folder.activity.touch()
            os.utime(folder.activity, (at, at))


class _SiblingCopy:
    """The local copy of one other instance."""

    def __init__(self, folder: InstanceFolder, fetch: Fetch, *, has_tensors: bool) -> None:
        self._folder = folder
        self._fetch = fetch
        self._tensors = TensorCopy(folder.tensors, partial(fetch, folder.root.name)) if has_tensors else None
        # Frames from the first one that says that the program has exited.
        self._held = b""

    def sync(self) -> None:
        """Copy what is new."""
        size = self._folder.spool.stat().st_size if self._folder.spool.exists() else 0
        self._held += self._fetch(self._folder.root.name, SPOOL, size + len(self._held))
        before, rest = _split(self._held)
        self._append(size, before)
        self._held = rest
        if self._sync_tensors(has_exited=bool(rest)) and rest:
            self._copy_results()
            self._append(size + len(before), rest)
            self._held = b""

    def _sync_tensors(self, *, has_exited: bool) -> bool:
        """Copy tensors. Return whether all are here; once the program has exited, none follow."""
        return self._tensors is None or self._tensors.sync(is_urgent=has_exited)

    def _append(self, offset: int, frames: bytes) -> None:
        if frames:
            apply_chunks(self._folder, [FileChunk(SPOOL, offset, frames)])

    def _copy_results(self) -> None:
        """Make each folder appear whole: an agent that packs it must never see part of it."""
        for path in RESULT_FOLDERS:
            target = self._folder.root / path
            if target.exists():
                continue
            coming = self._folder.root / "coming"
            remove_tree(coming)
            unpack_folder(partial(self._fetch_chunk, path), coming)
            target.parent.mkdir(parents=True, exist_ok=True)
            coming.rename(target)

    def _fetch_chunk(self, path: str, offset: int) -> bytes:
        """Fetch a chunk, with retries, so that a large folder need not be copied from its beginning again."""
        for _ in range(_FETCH_TRIES):
            # Clusters raise errors of their own when they do not reach a node.
            with suppress(Exception):
                return self._fetch(self._folder.root.name, path, offset)
            time.sleep(_SYNC_INTERVAL_S)
        return self._fetch(self._folder.root.name, path, offset)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Split frames before the first that says that the program has exited. An incomplete line is in neither part."""
    whole = data[: data.rfind(b"\n") + 1]
    at = 0
    while at < len(whole):
        end = whole.index(b"\n", at)
        frame = decode_frame(whole[at:end])
        if frame is not None and frame.kind in _EXIT_FRAMES:
            break
        at = end + 1
    return whole[:at], whole[at:]


class _ExitWatch:
    """Watches a spool for the exit of the program. Reads each frame once."""

    def __init__(self, folder: InstanceFolder) -> None:
        self._spool = folder.spool
        self._offset = 0
        self._has_exited = False

    def has_exited(self) -> bool:
        while not self._has_exited and (read := read_frames(self._spool, self._offset)).frames:
            self._offset = read.next_offset
            self._has_exited = any(frame.kind in _EXIT_FRAMES for frame in read.frames)
        return self._has_exited
