"""Decides what to upload and delete by comparing scans of a folder. Pure: times are arguments."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.instance.agent.data.sync.scan import FileStamp, FolderScan

# A file that never stops changing is tried after this time.
MAX_DELAY_S = 5.0
# In a frequently written folder, a file is uploaded again after this time at the earliest, and not faster than this.
MIN_REUPLOAD_S = 2.0
REUPLOAD_BYTES_PER_S = 4 << 20
# A file that has not changed for this long counts as complete even if a program has it open for writing.
OPEN_FILE_REST_S = 60.0

# Files that programs append to, so that a part of one is useful.
_APPEND_ONLY = ("*tfevents*", "*.arrows", "*.log", "*.jsonl", "*.ndjson", "*.csv", "*.tsv", "*.txt", "*.out", "*.err")


@dataclass(frozen=True, slots=True)
class UploadCandidate:
    """A file to upload now, possibly even if a program has it open for writing or is changing it."""

    path: str
    even_if_open: bool = False
    even_if_changing: bool = False


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What to do after a scan, in this order. With `is_waiting` more will be due even if nothing else changes."""

    uploads: Sequence[UploadCandidate] = ()
    deletes: Sequence[str] = ()
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    stamp: FileStamp
    since: float
    unchanged_since: float


class ChangeTracker:
    """Compares scans with each other and with what is stored.

    A file is due when two scans find it unchanged, and its deletion when two scans do not find it. Files are uploaded
    in the order of their last modification, so that an index of others comes after them, and before anything is
    deleted. With `is_frequently_written` the program writes files all the time, so a file that was uploaded waits for a
    while, and one that only grows is due even if no two scans find it unchanged.
    """

    def __init__(self, *, is_frequently_written: bool = False) -> None:
        self._is_frequently_written = is_frequently_written
        self._not_before: dict[str, float] = {}
        self._stored: dict[str, FileStamp] = {}
        self._dirty: dict[str, _ChangedFile] = {}
        self._gone: set[str] = set()

    def mark_stored(self, path: str, stamp: FileStamp, *, now: float = 0.0) -> None:
        """Record that the store has the file as it was at that stamp."""
        if self._is_frequently_written:
            self._not_before[path] = now + max(MIN_REUPLOAD_S, stamp.size / REUPLOAD_BYTES_PER_S)
        self._stored[path] = stamp
        self._dirty.pop(path, None)

    def mark_deleted(self, path: str) -> None:
        """Record that the object of a file was deleted."""
        self._stored.pop(path, None)
        self._not_before.pop(path, None)
        self._gone.discard(path)

    def plan(self, scan: FolderScan, *, now: float) -> SyncPlan:
        """Return what is due after a scan."""
        before, self._dirty = self._dirty, self._find_dirty(scan, now)
        due = [
            path
            for path, dirty in self._dirty.items()
            if now >= self._not_before.get(path, now)
            and (_is_due(dirty, before.get(path), now) or (self._is_frequently_written and is_append_only(path)))
        ]
        gone = self._missing(scan)
        deletes = sorted(gone & self._gone)
        self._gone = gone
        uploads = [_candidate(path, self._dirty[path], now) for path in _oldest_first(due, scan)]
        return SyncPlan(uploads, deletes, bool(self._dirty) or len(deletes) < len(gone))

    def final_plan(self, scan: FolderScan) -> SyncPlan:
        """Return everything that is left to do when the program has ended."""
        dirty = [path for path, stamp in scan.files.items() if self._stored.get(path) != stamp]
        uploads = [UploadCandidate(path, even_if_open=True) for path in _oldest_first(dirty, scan)]
        return SyncPlan(uploads, sorted(self._missing(scan)))

    def _find_dirty(self, scan: FolderScan, now: float) -> dict[str, _ChangedFile]:
        dirty = {}
        for path, stamp in scan.files.items():
            if self._stored.get(path) == stamp:
                continue
            known = self._dirty.get(path)
            unchanged_since = known.unchanged_since if known and known.stamp == stamp else now
            dirty[path] = _ChangedFile(stamp, known.since if known else now, unchanged_since)
        return dirty

    def _missing(self, scan: FolderScan) -> set[str]:
        return self._stored.keys() - scan.files.keys() if scan.is_complete else set()


def is_append_only(path: str) -> bool:
    """Whether programs usually append to files with this name."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _APPEND_ONLY)


def _is_due(dirty: _ChangedFile, before: _ChangedFile | None, now: float) -> bool:
    return (before is not None and before.stamp == dirty.stamp) or now - dirty.since >= MAX_DELAY_S


def _candidate(path: str, dirty: _ChangedFile, now: float) -> UploadCandidate:
    if is_append_only(path):
        return UploadCandidate(path, even_if_open=True, even_if_changing=True)
    return UploadCandidate(path, even_if_open=now - dirty.unchanged_since >= OPEN_FILE_REST_S)


def _oldest_first(paths: Sequence[str], scan: FolderScan) -> list[str]:
    return sorted(paths, key=lambda path: (scan.files[path].mtime_ns, path))
