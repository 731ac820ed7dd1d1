"""The mirror of an instance's folder: spool, log, metric points, hardware samples, step times, journal, a little later.

These files only grow, and logs and samples drop whole segments when they exceed their limits. So the size of a mirrored
file says what is missing, and nothing else has to be remembered. Bytes that a writer may still take back, because the
disk refused the rest, are not copied.

Only the facts about programs are replaced as a whole. Their version is the time at which they were written on the node,
which the mirrored file has too, so that it takes the place of the size.

The order matters: bytes of a log come before the records of its index, and the ENDED frame comes last of all. A reader
of the mirror never sees more than was true on the node at some moment.
"""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.cluster.contract import FileChunk
from trainyard.formats.logs.segments import RECORD_BYTES, LogSegment, segments_of
from trainyard.formats.profiles.hardware_segments import HardwareSegment, hardware_segments
from trainyard.formats.profiles.step_times import FACTS_SUFFIX, MAX_BYTES, MAX_FACTS_BYTES
from trainyard.foundation.errors import Conflict, Corrupt, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import MAX_FRAME_BYTES, decode_frame

_SPOOL, _JOURNAL = "spool", "agent.log"
_MIRRORED = re.compile(
    r"spool|agent\.log|logs/[0-9]{20}\.(log|index)|(metrics|hardware)/[^/\0]+\.points|hardware/[0-9]{20}\.samples"
    r"|steps/worker_[0-9-]{1,15}\.(steps|json)"
)
# Runs of zeros of at least this size become holes in the file.
_MIN_HOLE_BYTES = 1 << 16
_REMOVABLE = re.compile(r"logs/[0-9]{20}\.(log|index)|hardware/[0-9]{20}\.samples")


@dataclass(frozen=True, slots=True)
class MirrorUpdate:
    """What a node has and a mirror lacks. `is_all` says that nothing was left out because of its size."""

    chunks: Sequence[FileChunk]
    is_all: bool


def mirrored_sizes(folder: InstanceFolder) -> dict[str, int]:
    """Return the sizes of the files in a mirror; of facts, their versions."""
    sizes = {
        path: _version(folder.root / path) if _is_replaced(path) else _size(folder.root / path)
        for path in _paths(folder)
    }
    return {path: size for path, size in sizes.items() if size is not None}


def collect_update(folder: InstanceFolder, known: Mapping[str, int], *, limit_bytes: int) -> MirrorUpdate:
    """Collect what an instance's folder has beyond the known sizes, up to about `limit_bytes`."""
    return _UpdateCollector(folder, known, limit_bytes).collect()


def apply_chunks(folder: InstanceFolder, chunks: Sequence[FileChunk]) -> None:
    """Apply chunks to a mirror, in order. What the mirror already has stays.

    Raises Conflict if bytes are missing before a chunk, Corrupt if a chunk does not belong in a mirror, and OSError if
    the disk is full. After that, or after a kill at any moment, the mirror can be continued where it is.
    """
    for chunk in chunks:
        if not _MIRRORED.fullmatch(chunk.path) or (chunk.is_removed and not _REMOVABLE.fullmatch(chunk.path)):
            raise Corrupt(f'"{chunk.path}" is not a file that is mirrored.')
        if chunk.is_removed:
            (folder.root / chunk.path).unlink(missing_ok=True)
        elif _is_replaced(chunk.path):
            _replace_file(folder.root / chunk.path, chunk)
        else:
            append_chunk(folder.root / chunk.path, chunk)


def append_chunk(path: Path, chunk: FileChunk, *, mode: int = PRIVATE_FILE) -> None:
    """Append a chunk to a file, created with its folder if need be. What the file already has stays.

    Raises Conflict if bytes are missing before the chunk.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        # An earlier proxy of this yard may not have ended yet.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if not size:
            # The umask may have removed some bits.
            os.fchmod(descriptor, mode)
        if chunk.offset > size:
            raise Conflict("mirror of file", chunk.path, f"has {size} bytes, and the chunk begins at {chunk.offset}")
        rest = memoryview(chunk.data)[size - chunk.offset :]
        if len(rest) >= _MIN_HOLE_BYTES and not any(rest):
            # A program may leave sparse files that are larger than any disk. Zeros take no space here.
            os.ftruncate(descriptor, size + len(rest))
            return
        while rest:
            written = os.pwrite(descriptor, rest, size)
            size, rest = size + written, rest[written:]
    finally:
        os.close(descriptor)


def _replace_file(path: Path, chunk: FileChunk) -> None:
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        try:
            file.write(chunk.data)
            file.flush()
            os.utime(file.fileno(), ns=(chunk.offset * 1000, chunk.offset * 1000))
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def sync_mirror(folder: InstanceFolder) -> None:
    """Make a mirror durable, before the node forgets the instance."""
    for path in mirrored_sizes(folder):
        _sync(folder.root / path)
    for place in (folder.logs, folder.metrics, folder.hardware, folder.steps, folder.root):
        with suppress(FileNotFoundError):
            sync_folder(place)


class _UpdateCollector:
    """Collects the update of one folder, within a budget of bytes."""

    def __init__(self, folder: InstanceFolder, known: Mapping[str, int], limit_bytes: int) -> None:
        self._folder = folder
        self._known = known
        self._budget_bytes = limit_bytes
        self._chunks: list[FileChunk] = []
        self._is_all = True

    def collect(self) -> MirrorUpdate:
        # The spool is read first, because once it has the ENDED frame everything else is written; and it is sent last.
        spool = self._new_frames()
        self._budget_bytes -= len(spool)
        self._take_log()
        for path in sorted(_points(self._folder)):
            self._take_points(path)
        self._take_samples()
        self._take_steps()
        self._take_file(_JOURNAL, _size(self._folder.agent_log) or 0)
        if not self._is_all:
            spool = _without_ended_frame(spool)
        if spool:
            self._chunks.append(FileChunk(_SPOOL, self._known.get(_SPOOL, 0), spool))
        return MirrorUpdate(self._chunks, self._is_all)

    def _new_frames(self) -> bytes:
        """Read whole lines only: on a full disk, a writer takes back part of a line."""
        begin = self._known.get(_SPOOL, 0)
        size = (_size(self._folder.spool) or 0) - begin
        data = _read_at(self._folder.spool, begin, min(size, max(self._budget_bytes, MAX_FRAME_BYTES)))
        whole = data[: data.rfind(b"\n") + 1]
        self._is_all &= len(data) >= size
        return whole

    def _take_log(self) -> None:
        segments = segments_of(self._folder.logs)
        for path in _removed_segments(self._known, segments):
            self._chunks.append(FileChunk(path, 0, b"", is_removed=True))
        for segment in segments:
            # The log may have dropped the segment just now.
            with suppress(Unavailable):
                self._take_segment(segment)

    def _take_segment(self, segment: LogSegment) -> None:
        log, index = f"logs/{segment.log_file.name}", f"logs/{segment.index_file.name}"
        known = self._known.get(index, 0)
        if _size(segment.index_file) == known and known:
            return
        copied_to = segment.start + self._take_file(log, segment.end - segment.start)
        count = segment.number_at(copied_to) if copied_to < segment.end else segment.count
        if count and segment.entry(count - 1).end > copied_to:
            count -= 1
        self._take_file(index, count * RECORD_BYTES, ignores_budget=True)

    def _take_points(self, path: str) -> None:
        """Read under the lock of the writers, because a failing write takes back what it wrote."""
        try:
            with (self._folder.root / path).open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._take_file(path, os.fstat(file.fileno()).st_size)
        except BlockingIOError:
            self._is_all = False

    def _take_samples(self) -> None:
        """Take whole samples only: on a full disk, the writer takes back part of one."""
        segments = hardware_segments(self._folder.hardware)
        for path in _removed_samples(self._known, segments):
            self._chunks.append(FileChunk(path, 0, b"", is_removed=True))
        for segment in segments:
            path = f"hardware/{segment.file.name}"
            if _size(segment.file) != self._known.get(path):
                # The writer may have dropped the segment just now.
                with suppress(FileNotFoundError):
                    self._take_file(path, segment.whole_bytes)

    def _take_steps(self) -> None:
        """Take the copies of step times and facts. A program wrote the originals, so there may be anything in them."""
        for path in _step_files(self._folder):
            file = self._folder.root / path
            if not _is_replaced(path):
                self._take_file(path, min(_size(file) or 0, MAX_BYTES))
            elif (version := _version(file)) is not None and version != self._known.get(path):
                self._take_facts(path, version)

    def _take_facts(self, path: str, version: int) -> None:
        """Take facts as a whole, if the budget allows or nothing else was taken.

        If they are replaced meanwhile, they are taken again under their next version.
        """
        data = _read_at(self._folder.root / path, 0, MAX_FACTS_BYTES)
        if len(data) <= self._budget_bytes or not self._chunks:
            self._chunks.append(FileChunk(path, version, data))
            self._budget_bytes -= len(data)
        else:
            self._is_all = False

    def _take_file(self, path: str, end: int, *, ignores_budget: bool = False) -> int:
        """Take a file up to `end`, or as far as the budget allows. Return the size that the mirror will have."""
        begin = self._known.get(path, 0)
        size = end - begin if ignores_budget else min(end - begin, max(0, self._budget_bytes))
        data = _read_at(self._folder.root / path, begin, size) if size > 0 else b""
        if data:
            self._chunks.append(FileChunk(path, begin, data))
            self._budget_bytes -= len(data)
        self._is_all &= begin + len(data) >= end
        return begin + len(data)


def _without_ended_frame(frames: bytes) -> bytes:
    """Remove the ENDED frame, if it is there."""
    begin = frames.rfind(b"\n", 0, -1) + 1
    last = decode_frame(frames[begin:-1])
    return frames[:begin] if last is not None and last.kind is FrameKind.ENDED else frames


def _removed_segments(known: Mapping[str, int], segments: Sequence[LogSegment]) -> list[str]:
    """Return the log files of a mirror that the node has dropped. A segment is dropped only when there is a later one.

    The index comes first, because it is what makes a segment exist.
    """
    there = {f"logs/{file.name}" for segment in segments for file in (segment.index_file, segment.log_file)}
    latest = f"logs/{segments[-1].index_file.name}" if segments else ""
    mirrored = (path for path in known if path.startswith("logs/") and _REMOVABLE.fullmatch(path))
    gone = [path for path in mirrored if path not in there and path < latest]
    return sorted(gone, key=lambda path: (path.endswith(".log"), path))


def _removed_samples(known: Mapping[str, int], segments: Sequence[HardwareSegment]) -> list[str]:
    """Return the segments of samples of a mirror that the node has dropped."""
    there = {f"hardware/{segment.file.name}" for segment in segments}
    mirrored = (path for path in known if path.startswith("hardware/") and _REMOVABLE.fullmatch(path))
    return sorted(path for path in mirrored if path not in there and path < max(there, default=""))


def _paths(folder: InstanceFolder) -> Iterator[str]:
    yield from (_SPOOL, _JOURNAL)
    yield from (f"logs/{name}" for name in _names(folder.logs) if _MIRRORED.fullmatch(f"logs/{name}"))
    yield from _points(folder)
    yield from (f"hardware/{segment.file.name}" for segment in hardware_segments(folder.hardware))
    yield from _step_files(folder)


def _step_files(folder: InstanceFolder) -> list[str]:
    found = sorted(f"steps/{name}" for name in _names(folder.steps))
    return [path for path in found if _MIRRORED.fullmatch(path)]


def _is_replaced(path: str) -> bool:
    """Whether a file is replaced as a whole instead of growing."""
    return path.endswith(FACTS_SUFFIX)


def _version(path: Path) -> int | None:
    """Return when a file was written, in microseconds."""
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return None


def _points(folder: InstanceFolder) -> list[str]:
    places = {"metrics": folder.metrics, "hardware": folder.hardware}
    found = (f"{name}/{file}" for name, place in places.items() for file in _names(place) if file.endswith(".points"))
    return [path for path in found if _MIRRORED.fullmatch(path)]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - polled often, and only the names count
    except FileNotFoundError:
        return []


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _read_at(path: Path, offset: int, size: int) -> bytes:
    if size <= 0:
        return b""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
