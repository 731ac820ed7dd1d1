"""The other instances of the job, as seen from their folders beside this one's.

An instance that has ended leaves its ml folder untouched until the whole attempt is over. So the first instance packs
the results of all, and the others do not have to send theirs. When the instances run on several machines, the cluster
engine copies the spools of the others and the times of their last activity to the first one's machine. Before a spool
reports the end of a program, it also copies the results, and the tensors if rule processes need them. Nothing else is
there.
"""

import time
from collections.abc import Callable, Iterator
from enum import Enum, auto

from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import INTERRUPTED, Frame, FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import last_frame, read_frames

_POLL_S = 0.05
_GOOD_OUTCOMES = ("completed", "stopped")


class SiblingState(Enum):
    """The state of a sibling. LOST: its agent died without a last report. INTERRUPTED: another attempt follows."""

    RUNNING = auto()
    ENDED_WELL = auto()
    INTERRUPTED = auto()
    FAILED = auto()
    LOST = auto()


class Siblings:
    """All other instances of the attempt, in the order of the job's hosts."""

    def __init__(self, folder: InstanceFolder, spec: InstanceSpec) -> None:
        self._folders = {
            host: InstanceFolder(folder.root.with_name(host)) for host in spec.hosts if host != spec.instance
        }

    def wait(self, check: Callable[[], None]) -> dict[str, SiblingState]:
        """Wait until all have ended, and return how. Calls `check` meanwhile, which may raise.

        Siblings that died are not waited for. One that has not started yet will start, or the whole attempt ends.
        """
        while (
            SiblingState.RUNNING
            in (states := {name: _state(folder) for name, folder in self._folders.items()}).values()
        ):
            check()
            time.sleep(_POLL_S)
        return states

    def exited_hosts(self) -> list[str]:
        """The siblings whose programs have ended, so that their folders no longer change."""
        return [name for name, folder in self._folders.items() if _has_exited(folder)]

    def running_hosts(self) -> list[str]:
        """The siblings that were prepared and have not ended."""
        return [name for name, folder in self._folders.items() if folder.root.is_dir() and not _has_exited(folder)]

    def __getitem__(self, name: str) -> InstanceFolder:
        return self._folders[name]

    def __bool__(self) -> bool:
        return bool(self._folders)


def _state(folder: InstanceFolder) -> SiblingState:
    presence = find_agent_process(folder.root)
    # Read before the spool: the agent may write its last report and exit in between.
    is_dead = presence is not None and not presence.is_alive
    last = last_frame(folder.spool)
    if last is not None and last.kind is FrameKind.ENDED:
        return _state_at_end(last)
    return SiblingState.LOST if is_dead else SiblingState.RUNNING


def _state_at_end(last: Frame) -> SiblingState:
    if last.payload.get("reason") == INTERRUPTED:
        return SiblingState.INTERRUPTED
    return SiblingState.ENDED_WELL if last.payload["outcome"] in _GOOD_OUTCOMES else SiblingState.FAILED


def _has_exited(folder: InstanceFolder) -> bool:
    return any(frame.kind in (FrameKind.EXITED, FrameKind.ENDED) for frame in _frames(folder))


def _frames(folder: InstanceFolder) -> Iterator[Frame]:
    offset = 0
    while (read := read_frames(folder.spool, offset)).frames:
        yield from read.frames
        offset = read.next_offset
