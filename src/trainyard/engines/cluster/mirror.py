"""The mirror of an instance's folder: the same spool, log, points and journal as on the node, a little later.

Nothing in these files is ever changed: they grow, and the log loses whole segments where it passes its limit. So the
size of a mirrored file says what is missing, and is all that has to be remembered. Brought is only what stays: what a
writer may yet take back, because the disk refused the rest of it, is left out.

What is brought comes in an order: bytes of a log before the records of its index, and the last frame of all when there
is nothing else left. Whoever reads a mirror never sees more than was true on the node at some moment.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.cluster.contract import Piece
from trainyard.formats.logs.segments import RECORD_BYTES, Segment, segments_of
from trainyard.foundation.errors import Conflict, Corrupt, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import MAX_FRAME_BYTES, decode_frame

_SPOOL, _JOURNAL = "spool", "agent.log"
_PATHS = re.compile(r"spool|agent\.log|logs/[0-9]{20}\.(log|index)|metrics/[^/\0]+\.points")
_HOLE_BYTES = 1 << 16  # of zeros, from which on they are not written
_REMOVABLE = re.compile(r"logs/[0-9]{20}\.(log|index)")


@dataclass(frozen=True, slots=True)
class News:
    """What a node has that a mirror has not; `is_all` when nothing was left out for its size."""

    pieces: Sequence[Piece]
    is_all: bool


def cursors(folder: InstanceFolder) -> dict[str, int]:
    """The sizes of the files that a mirror has."""
    return {path: size for path in _paths(folder) if (size := _size(folder.root / path)) is not None}


def news(folder: InstanceFolder, known: Mapping[str, int], *, limit_bytes: int) -> News:
    """What lies in an instance's folder beyond the sizes that are known; about so many bytes of it at most."""
    return _Gathering(folder, known, limit_bytes).gathered()


def apply(folder: InstanceFolder, pieces: Sequence[Piece]) -> None:
    """Put pieces into a mirror, in their order; what it has already is left alone.

    Conflict when bytes are missing before a piece, Corrupt when it is none of a mirror. Killed at any moment, or on a
    full disk, which is an OSError, it leaves a mirror that goes on where it is.
    """
    for piece in pieces:
        if not _PATHS.fullmatch(piece.path) or (piece.is_removed and not _REMOVABLE.fullmatch(piece.path)):
            raise Corrupt(f'"{piece.path}" is no file of an instance that is mirrored.')
        if piece.is_removed:
            (folder.root / piece.path).unlink(missing_ok=True)
        else:
            append(folder.root / piece.path, piece)


def append(path: Path, piece: Piece, *, mode: int = PRIVATE_FILE) -> None:
    """Put a piece at the end of a file, made with its folder if need be; what that has already is left alone.

    Conflict when bytes are missing before the piece.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # another ferry of this yard may not have ended yet
        size = os.fstat(descriptor).st_size
        if not size:
            os.fchmod(descriptor, mode)  # the umask may have taken bits away
        if piece.offset > size:
            raise Conflict("mirror of file", piece.path, f"has {size} bytes, and the piece begins at {piece.offset}")
        rest = memoryview(piece.data)[size - piece.offset :]
        if len(rest) >= _HOLE_BYTES and not any(rest):
            # A program may leave files that are larger than any disk. What is nothing but zeros takes no space here.
            os.ftruncate(descriptor, size + len(rest))
            return
        while rest:
            written = os.pwrite(descriptor, rest, size)
            size, rest = size + written, rest[written:]
    finally:
        os.close(descriptor)


def settle(folder: InstanceFolder) -> None:
    """Make a mirror durable, before the node forgets what it has."""
    for path in cursors(folder):
        _sync(folder.root / path)
    for place in (folder.logs, folder.metrics, folder.root):
        with suppress(FileNotFoundError):
            sync_folder(place)


class _Gathering:
    """One look at a folder, within a budget of bytes."""

    def __init__(self, folder: InstanceFolder, known: Mapping[str, int], limit_bytes: int) -> None:
        self._folder = folder
        self._known = known
        self._left = limit_bytes
        self._pieces: list[Piece] = []
        self._is_all = True

    def gathered(self) -> News:
        # The spool is looked at first: with the last frame in it, everything else has been written. It is given last.
        spool = self._new_frames()
        self._left -= len(spool)
        self._take_log()
        for path in sorted(_points(self._folder)):
            self._take_points(path)
        self._take(_JOURNAL, _size(self._folder.agent_log) or 0)
        if not self._is_all:
            spool = _without_end(spool)
        if spool:
            self._pieces.append(Piece(_SPOOL, self._known.get(_SPOOL, 0), spool))
        return News(self._pieces, self._is_all)

    def _new_frames(self) -> bytes:
        """Whole lines only: a full disk takes back what it got of one."""
        begin = self._known.get(_SPOOL, 0)
        size = (_size(self._folder.spool) or 0) - begin
        data = _read(self._folder.spool, begin, min(size, max(self._left, MAX_FRAME_BYTES)))
        whole = data[: data.rfind(b"\n") + 1]
        self._is_all &= len(data) >= size
        return whole

    def _take_log(self) -> None:
        segments = segments_of(self._folder.logs)
        for path in _removed(self._known, segments):
            self._pieces.append(Piece(path, 0, b"", is_removed=True))
        for segment in segments:
            with suppress(Unavailable):  # the limit of the log dropped it just now
                self._take_segment(segment)

    def _take_segment(self, segment: Segment) -> None:
        log, index = f"logs/{segment.log_file.name}", f"logs/{segment.index_file.name}"
        known = self._known.get(index, 0)
        if _size(segment.index_file) == known and known:
            return
        brought = segment.start + self._take(log, segment.end - segment.start)
        count = segment.number_at(brought) if brought < segment.end else segment.count
        if count and segment.entry(count - 1).end > brought:
            count -= 1
        self._take(index, count * RECORD_BYTES, is_free=True)

    def _take_points(self, path: str) -> None:
        """Under the lock that appends are made under: a failing one takes back what it wrote."""
        try:
            with (self._folder.root / path).open("rb", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._take(path, os.fstat(file.fileno()).st_size)
        except BlockingIOError:
            self._is_all = False

    def _take(self, path: str, end: int, *, is_free: bool = False) -> int:
        """Take a file on to its `end`, or as far as there is room; where the mirror will have it then."""
        begin = self._known.get(path, 0)
        size = end - begin if is_free else min(end - begin, max(0, self._left))
        data = _read(self._folder.root / path, begin, size) if size > 0 else b""
        if data:
            self._pieces.append(Piece(path, begin, data))
            self._left -= len(data)
        self._is_all &= begin + len(data) >= end
        return begin + len(data)


def _without_end(frames: bytes) -> bytes:
    """Without the last frame of all, should it be there."""
    begin = frames.rfind(b"\n", 0, -1) + 1
    last = decode_frame(frames[begin:-1])
    return frames[:begin] if last is not None and last.kind is FrameKind.ENDED else frames


def _removed(known: Mapping[str, int], segments: Sequence[Segment]) -> list[str]:
    """Of what a mirror has of the log, what was dropped; a segment is only when there is a later one.

    The index goes first: it is what makes a segment exist.
    """
    there = {f"logs/{file.name}" for segment in segments for file in (segment.index_file, segment.log_file)}
    latest = f"logs/{segments[-1].index_file.name}" if segments else ""
    gone = [path for path in known if _REMOVABLE.fullmatch(path) and path not in there and path < latest]
    return sorted(gone, key=lambda path: (path.endswith(".log"), path))


def _paths(folder: InstanceFolder) -> Iterator[str]:
    yield from (_SPOOL, _JOURNAL)
    yield from (f"logs/{name}" for name in _names(folder.logs) if _PATHS.fullmatch(f"logs/{name}"))
    yield from _points(folder)


def _points(folder: InstanceFolder) -> list[str]:
    return [path for name in _names(folder.metrics) if _PATHS.fullmatch(path := f"metrics/{name}")]


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


def _read(path: Path, offset: int, size: int) -> bytes:
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
