"""The other instances of a job: what is known of them from their folders, which lie beside this one's.

An instance that has ended leaves its ml folder as it is until the whole attempt is over. So the first instance packs
the results of all, and the others need not send theirs anywhere. Where instances lie on several machines, their keepers
bring to the first one's machine the spools of the others, the time of their last activity and, before a spool tells of
the end of a program, its results, and its tensors where rules are judged beside it. Nothing else of them is there.
"""

import time
from collections.abc import Callable, Iterator
from enum import Enum, auto

from trainyard.link.contract import INTERRUPTED, Frame, FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.presence import presence_of
from trainyard.link.spool import last_frame, read_frames

_PAUSE_S = 0.05
_WELL = ("completed", "stopped")


class State(Enum):
    """How far a sibling is. LOST is one whose agent died without a last report; one that was interrupted comes back."""

    GOES_ON = auto()
    ENDED_WELL = auto()
    INTERRUPTED = auto()
    FAILED = auto()
    LOST = auto()


class Siblings:
    """All instances of the attempt but this one, in the order of their names in the job."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        self._folders = {
            host: InstanceFolder(folder.root.with_name(host)) for host in spec.hosts if host != spec.instance
        }

    def wait(self, check: Callable[[], None]) -> dict[str, State]:
        """How each has ended, once all have. `check` is called while waiting, and may raise to end that.

        Nobody waits for one that is dead. One that was not started yet will be, or the whole attempt is ended.
        """
        while State.GOES_ON in (states := {name: _state(folder) for name, folder in self._folders.items()}).values():
            check()
            time.sleep(_PAUSE_S)
        return states

    def at_rest(self) -> list[str]:
        """Those whose programs have ended, so that nothing changes in their folders."""
        return [name for name, folder in self._folders.items() if _has_exited(folder)]

    def at_work(self) -> list[str]:
        """Those that were prepared and have not ended."""
        return [name for name, folder in self._folders.items() if folder.root.is_dir() and not _has_exited(folder)]

    def __getitem__(self, name: str) -> InstanceFolder:
        return self._folders[name]

    def __bool__(self) -> bool:
        return bool(self._folders)


def _state(folder: InstanceFolder) -> State:
    presence = presence_of(folder.root)
    is_dead = presence is not None and not presence.is_alive  # asked first: it may report and go in between
    last = last_frame(folder.spool)
    if last is not None and last.kind is FrameKind.ENDED:
        return _state_at_end(last)
    return State.LOST if is_dead else State.GOES_ON


def _state_at_end(last: Frame) -> State:
    if last.payload.get("reason") == INTERRUPTED:
        return State.INTERRUPTED
    return State.ENDED_WELL if last.payload["outcome"] in _WELL else State.FAILED


def _has_exited(folder: InstanceFolder) -> bool:
    return any(frame.kind in (FrameKind.EXITED, FrameKind.ENDED) for frame in _frames(folder))


def _frames(folder: InstanceFolder) -> Iterator[Frame]:
    offset = 0
    while (read := read_frames(folder.spool, offset)).frames:
        yield from read.frames
        offset = read.next_offset
