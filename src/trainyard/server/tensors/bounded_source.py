"""The files of a trial as the reading process sees them: asked of the yard, and no more than it has room for."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from trainyard.formats.tensors.recordings import layout
from trainyard.foundation.errors import NotFound, TrainyardError, Unavailable
from trainyard.foundation.sources import ByteSource, SourceEntry
from trainyard.server.control.worker_messages import MAX_PART_BYTES, Parcel, receive, send

# What the process keeps of the files of a kind, which it shares between the workers.
KEPT_BYTES = {layout.STEPS: 512 << 20, layout.HISTOGRAMS: 64 << 20}
# A segment is sealed at a fraction of this.
MAX_FILE_BYTES = 256 << 20
# Files that cannot be read and are left out. If there are more, the trial is damaged beyond use.
MAX_UNREADABLE = 20


class AskedSource:
    """Asks the yard for the files of one trial. `last_read` is the name of the file that was read last."""

    def __init__(self, place: str, questions: IO[bytes], answers: IO[bytes]) -> None:
        self.place, self._questions, self._answers = place, questions, answers
        self.last_read = ""

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        return [SourceEntry(*each) for each in self._ask("entries", folder, after=after).message["entries"]]

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        return [str(each) for each in self._ask("folders", folder, after=after).message["folders"]]

    def size(self, name: str) -> int:
        return int(self._ask("size", name).message["size"])

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        self.last_read = name
        parts: list[bytes] = []
        while size is None or size > 0:
            wanted = MAX_PART_BYTES if size is None else min(size, MAX_PART_BYTES)
            part = self._ask("read", name, start=start, size=wanted).body
            parts.append(part)
            if len(part) < wanted:
                break
            start, size = start + wanted, None if size is None else size - wanted
        return b"".join(parts)

    def _ask(self, what: str, name: str, **more: Any) -> Parcel:
        send(self._answers, {"file": what, "name": name, **more})
        told = receive(self._questions)
        if told.message.get("is_missing"):
            raise NotFound("file", name)
        if "error" in told.message:
            raise Unavailable(str(told.message["error"]))
        return told


@dataclass
class BoundedSource:
    """A source without the files that cannot be read, and with only some of those that are too many.

    What was shown once stays visible, because readers remember what they have read. If a growing trial has outgrown the
    bound, `is_outgrown` says that it should be opened anew, which chooses files again.
    """

    source: ByteSource
    workers: int = 1
    unreadable: dict[str, str] = field(default_factory=dict)
    is_outgrown: bool = False

    def __post_init__(self) -> None:
        self._shown: dict[str, dict[str, int]] = defaultdict(dict)
        self._hidden: dict[str, set[str]] = defaultdict(set)

    @property
    def place(self) -> str:
        return self.source.place

    @property
    def hidden_files(self) -> int:
        return sum(len(each) for each in self._hidden.values())

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        found = [
            each for each in self.source.entries(folder, after=after) if _join(folder, each.name) not in self.unreadable
        ]
        kind = folder.partition("/")[0]
        return found if kind not in KEPT_BYTES else self._choose(folder, found, KEPT_BYTES[kind] // self.workers)

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        return self.source.folders(folder, after=after)

    def size(self, name: str) -> int:
        return self.source.size(name)

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        if start < 0 or (size is not None and size < 0):
            raise NotFound("part of the file", name)
        return self.source.read(name, start=start, size=size)

    def leave_out(self, name: str, why: str) -> None:
        """Hide a file that cannot be read."""
        self.unreadable[name] = why

    def notes(self) -> list[str]:
        """Return sentences about what is hidden."""
        notes = [f"The file {name} is left out: {why}" for name, why in self.unreadable.items()]
        if self.hidden_files:
            notes.append(
                f"The run has recorded more than fits here, so {self.hidden_files} of its files are left out, evenly "
                "spread over the steps. `trainyard tensors export` reads all of them."
            )
        return notes

    def _choose(self, folder: str, found: Sequence[SourceEntry], bound: int) -> list[SourceEntry]:
        shown, hidden = self._shown[folder], self._hidden[folder]
        is_first = not shown and not hidden
        for each in found:
            if each.size > MAX_FILE_BYTES:
                self.leave_out(_join(folder, each.name), f"it has {each.size} bytes, more than any that a hook writes.")
        new = [
            each for each in found if each.size <= MAX_FILE_BYTES and each.name not in shown and each.name not in hidden
        ]
        # Every n-th file, and the newest, in which a running program writes.
        stride = max(1, -(-sum(each.size for each in new) // bound)) if is_first else 1
        for place, each in enumerate(new):
            fits = is_first or sum(shown.values()) + each.size <= 2 * bound
            if fits and (place % stride == 0 or place == len(new) - 1):
                shown[each.name] = each.size
            else:
                hidden.add(each.name)
                self.is_outgrown = self.is_outgrown or not is_first
        shown.update({each.name: each.size for each in found if each.name in shown})
        return [each for each in found if each.name in shown and each.size <= MAX_FILE_BYTES]


def describe_error(error: BaseException) -> str:
    """Return what is wrong with a file, in a line."""
    if isinstance(error, MemoryError):
        return "it needs more memory than there is."
    if isinstance(error, TrainyardError):
        return error.message
    return f"it is damaged ({error!r})."[:500]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
