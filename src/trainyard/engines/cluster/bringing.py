"""Brings to a node what the agents there need of instances on other nodes.

The agent of the first instance packs what all have left, and looks for it beside its own folder. So their spools are
brought there, and what they left before the frame appears by which they are known to have ended. Where it has rules
judged beside the program, their tensors come as well, while they are written. Every agent needs to know when the others
were last active, to tell whether the whole job hangs.
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

from trainyard.engines.cluster.contract import Piece
from trainyard.engines.cluster.mirror import apply
from trainyard.engines.cluster.parts import unpack
from trainyard.engines.cluster.tensors import TensorCopy, are_needed
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder, InstanceRef
from trainyard.link.hanging import hang_limit_s
from trainyard.link.neighbours import elsewhere, is_first_here
from trainyard.link.spool import decode_frame, read_frames

SPOOL, ACTIVITY = "spool", "activity"
LEFT = ("ml/model", "ml/output/data")  # what is packed of an instance

# The instance's name, the path below its folder, and the offset: what `Keeper.part` of that instance's keeper answers.
Fetch = Callable[[str, str, int], bytes]

_PAUSE_S = 0.5
_SHORT_PAUSE_S = 0.05  # once the first instance waits for the others
_MARK_PAUSE_S = 5.0
_MARK_SHARE = 0.1  # of the time after which a job hangs
_TRIES = 20  # for a piece, with a pause between them
_AT_REST = (FrameKind.EXITED, FrameKind.ENDED)

log = logging.getLogger(__name__)


class Bringing:
    """Goes on in a thread of its own until the instance here has ended. What fails is tried again.

    The first instance gets all of the others. On every other node the first instance there gets only how active those
    elsewhere are, which the first instance of all knows.
    """

    def __init__(self, jobs: Path, spec: InstanceSpec, fetch: Fetch, *, is_over: Callable[[], bool]) -> None:
        own = InstanceRef.of(spec).folder(jobs)
        is_first = spec.instance == spec.hosts[0]
        self._rest = _Rest(own)
        self._marks = _Marks(own.root.parent, spec, fetch)
        self._others = [
            _Sibling(InstanceFolder(own.root.with_name(name)), fetch, has_tensors=are_needed(spec))
            for name in (elsewhere(spec) if is_first else ())
        ]
        self._is_over = is_over
        self._thread = threading.Thread(target=self._go_on, name=f"bringing-{spec.job_id}", daemon=True)

    @staticmethod
    def is_needed(spec: InstanceSpec) -> bool:
        return bool(elsewhere(spec)) and is_first_here(spec)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_over():
            for look in (self._marks.look, *(sibling.look for sibling in self._others)):
                try:
                    look()
                except Exception as error:  # whatever a cluster raises when it does not reach a node
                    log.info("a node is not reached", extra={"why": str(error)})
            time.sleep(_SHORT_PAUSE_S if self._others and self._rest.look() else min(_PAUSE_S, self._marks.pause_s))


class _Marks:
    """When the instances elsewhere were last active, as marks in folders beside the instance's own."""

    def __init__(self, attempt: Path, spec: InstanceSpec, fetch: Fetch) -> None:
        self._attempt = attempt
        self._elsewhere = elsewhere(spec)
        self._asked = self._elsewhere if spec.instance == spec.hosts[0] else spec.hosts[:1]
        self._fetch = fetch
        self._limit_s = hang_limit_s(spec)
        self._next = 0.0

    @property
    def pause_s(self) -> float:
        """A mark goes over two nodes, and has to be fresh all the same."""
        return min(self._limit_s * _MARK_SHARE, _MARK_PAUSE_S) or _MARK_PAUSE_S

    def look(self) -> None:
        if not self._limit_s or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.pause_s
        for host in self._asked:
            for name, age_s in json.loads(self._fetch(host, ACTIVITY, 0)).items():
                if name in self._elsewhere:
                    self._mark(InstanceFolder(self._attempt / name), time.time() - age_s)

    def _mark(self, folder: InstanceFolder, at: float) -> None:
        folder.root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        if not folder.activity.exists() or folder.activity.stat().st_mtime < at:
            folder.activity.touch()
            os.utime(folder.activity, (at, at))


class _Sibling:
    """One other instance, as far as it was brought."""

    def __init__(self, folder: InstanceFolder, fetch: Fetch, *, has_tensors: bool) -> None:
        self._folder = folder
        self._fetch = fetch
        self._tensors = TensorCopy(folder.tensors, partial(fetch, folder.root.name)) if has_tensors else None
        self._held = b""  # frames behind the first by which the instance is at rest

    def look(self) -> None:
        """Bring what is new."""
        brought = self._folder.spool.stat().st_size if self._folder.spool.exists() else 0
        self._held += self._fetch(self._folder.root.name, SPOOL, brought + len(self._held))
        before, rest = _split(self._held)
        self._append(brought, before)
        self._held = rest
        if self._bring_tensors(is_at_rest=bool(rest)) and rest:
            self._bring_left()
            self._append(brought + len(before), rest)
            self._held = b""

    def _bring_tensors(self, *, is_at_rest: bool) -> bool:
        """Whether all is here. Of an instance at rest that is so for good."""
        return self._tensors is None or self._tensors.look(is_pressing=is_at_rest)

    def _append(self, offset: int, frames: bytes) -> None:
        if frames:
            apply(self._folder, [Piece(SPOOL, offset, frames)])

    def _bring_left(self) -> None:
        """Each folder appears whole: an agent that packs it must never see a part of it."""
        for path in LEFT:
            target = self._folder.root / path
            if target.exists():
                continue
            coming = self._folder.root / "coming"
            remove_tree(coming)
            unpack(partial(self._piece, path), coming)
            target.parent.mkdir(parents=True, exist_ok=True)
            coming.rename(target)

    def _piece(self, path: str, offset: int) -> bytes:
        """A piece of a folder, asked for again for a while, so that a large one need not come from its beginning."""
        for _ in range(_TRIES):
            with suppress(Exception):  # whatever a cluster raises when it does not reach a node
                return self._fetch(self._folder.root.name, path, offset)
            time.sleep(_PAUSE_S)
        return self._fetch(self._folder.root.name, path, offset)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """The frames before the first that tells of an end, and what is behind them; a part of a line is in neither."""
    whole = data[: data.rfind(b"\n") + 1]
    at = 0
    while at < len(whole):
        end = whole.index(b"\n", at)
        frame = decode_frame(whole[at:end])
        if frame is not None and frame.kind in _AT_REST:
            break
        at = end + 1
    return whole[:at], whole[at:]


class _Rest:
    """Whether the program of an instance has ended, by its spool, of which each frame is read once."""

    def __init__(self, folder: InstanceFolder) -> None:
        self._spool = folder.spool
        self._offset = 0
        self._is_so = False

    def look(self) -> bool:
        while not self._is_so and (read := read_frames(self._spool, self._offset)).frames:
            self._offset = read.next_offset
            self._is_so = any(frame.kind in _AT_REST for frame in read.frames)
        return self._is_so
