"""Copies the tensors of an instance to the node of another one while they are written.

`formats/tensors/recordings/layout.py` describes the files. Segments grow at their ends, raw values appear whole, and
progress files, which are replaced, say how far a worker has come. The copy always shows what was true at some moment:
raw values appear before the rows that refer to them, and both before the progress files.

A runner lists the files that changed since a given time, by the clock of the files themselves, so that a long history
is listed once. While raw values are being added it has to scan all of them, so the slower that is, the less often it is
asked.
"""

import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path

from trainyard.engines.cluster.contract import FileChunk
from trainyard.engines.cluster.folder_tar import PART_BYTES
from trainyard.engines.cluster.mirror import append_chunk
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import InstanceSpec

TENSORS = "tensors"
# The list while there is no folder of tensors.
NO_TENSORS = b"null"

# The same as in formats/tensors/recordings/layout.py, which imports numpy.
# A name is in ASCII, and short enough for a suffix.
_NAME = r"(?!\.)[ -.0-~]{1,100}"
_TENSOR_FILES = re.compile(
    rf"(steps|histograms)/{_NAME}/{_NAME}\.arrows|values/{_NAME}/{_NAME}\.safetensors|{_NAME}\.manifest\.json|ended\.json"
)
_SEGMENT, _UNFINISHED, _VALUES = ".arrows", ".tmp", "values"
# Values come last, so that none is missed to which a row refers.
_FOLDERS = ("steps", "histograms", _VALUES)

# Files in one list.
_MAX_LISTED = 2000
# Files of this time are listed again: folders are not all read at one moment, and the clock of files is coarse.
_OVERLAP_NS = 2_000_000_000
# One sync copies what it can in this time, so that other instances get their turn.
_SYNC_BUDGET_S = 1.0
# The next list is requested after this many times the time that the last one took.
_LISTING_BACKOFF = 10
# For the user of the job. Other users cannot enter the folder of an instance.
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644

# Calls `InstanceRunner.part` of the instance: a path and an offset.
Fetch = Callable[[str, int], bytes]

log = logging.getLogger(__name__)


def needs_tensors(spec: InstanceSpec) -> bool:
    """Whether rules are evaluated next to the program, on the first instance, where they need the tensors of all."""
    return spec.debugger is not None and any(rule.is_beside or rule.source for rule in spec.debugger.rules)


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A listed file. `changed` is the time of its last change, in nanoseconds by the clock of its file system."""

    path: str
    size: int
    changed: int

    @property
    def grows(self) -> bool:
        return self.path.endswith(_SEGMENT)

    @property
    def is_progress(self) -> bool:
        """Whether it says how far a worker has come, or that the program has ended."""
        return "/" not in self.path


class TensorFiles:
    """The tensors of an instance on its own node, below a folder that the program can write but not replace.

    Links, and files with more than one name, may lead to anybody's data: they are neither listed nor read.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path

    def list_changed(self, since: int) -> bytes:
        """Return the files changed at `since` or later, oldest change first, in JSON; null while there is no folder."""
        if not self._exists():
            return NO_TENSORS
        began = time.time_ns()
        files = nsmallest(_MAX_LISTED + 1, self._changed_files(since), key=lambda each: (each.changed, each.grows))
        listed = [(each.path, each.size, each.changed) for each in files[:_MAX_LISTED]]
        return json.dumps({"at": began, "files": listed, "is_all": len(files) <= _MAX_LISTED}).encode()

    def read(self, wanted: str, offset: int) -> bytes:
        """Read `<changed>/<path>` from an offset on; empty if the file has changed since. 0 stands for any time."""
        changed, _, path = wanted.partition("/")
        if not changed.isdecimal() or not _TENSOR_FILES.fullmatch(path):
            raise InvalidRequest(f'"{wanted}" is not a tensor file of an instance.')
        parent, _, name = path.rpartition("/")
        try:
            with self._open_folder(parent) as folder:
                descriptor = folder.open_file(name)
        except OSError:
            return b""
        try:
            found = os.fstat(descriptor)
            is_wanted = found.st_nlink == 1 and int(changed) in (0, found.st_ctime_ns)
            return os.pread(descriptor, PART_BYTES, offset) if is_wanted else b""
        finally:
            os.close(descriptor)

    def _exists(self) -> bool:
        with suppress(OSError), self._open_folder(""):
            return True
        return False

    def _changed_files(self, since: int) -> Iterator[TensorFile]:
        yield from self._changed_in("", since)
        for kind in _FOLDERS:
            for worker in self._names(kind):
                yield from self._changed_in(f"{kind}/{worker}", since)

    def _changed_in(self, below: str, since: int) -> Iterator[TensorFile]:
        with suppress(OSError), self._open_folder(below) as folder:
            if below.startswith(f"{_VALUES}/") and os.fstat(folder.fileno()).st_ctime_ns < since:
                return
            with os.scandir(folder.fileno()) as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}".lstrip("/")
                    if _TENSOR_FILES.fullmatch(path) and (found := _status(entry)) and found.st_ctime_ns >= since:
                        yield TensorFile(path, found.st_size, found.st_ctime_ns)

    def _names(self, below: str) -> Sequence[str]:
        with suppress(OSError), self._open_folder(below) as folder:
            return folder.names()
        return []

    def _open_folder(self, below: str) -> ConfinedFolder:
        return ConfinedFolder.open(self._root, f"{self._path}/{below}")


class TensorCopy:
    """A copy of the tensors of an instance on another node. Used by one thread.

    If killed at any moment, it continues where it was. Errors are raised, and the next sync tries again. A program may
    have more tensors than this disk can hold: then copying stops, and rules do not see what is missing.
    """

    def __init__(self, root: Path, fetch: Fetch) -> None:
        self._root = root
        self._fetch = fetch
        # Both by the clock of the other node.
        self._newest_ctime = 0
        self._listed_at = 0
        # Progress files to fetch, with the time of their change.
        self._progress: dict[str, int] = {}
        # Progress files that wait until everything is here to which they may refer.
        self._held: dict[str, tuple[bytes, int]] = {}
        self._next = 0.0
        self._is_disk_full = False

    def sync(self, *, is_urgent: bool = False) -> bool:
        """Copy what is new, for a limited time, and return whether that is all. Unless urgent, back off first."""
        if self._is_disk_full:
            return True
        if time.monotonic() < self._next and not is_urgent:
            return False
        deadline = time.monotonic() + _SYNC_BUDGET_S
        since = max(0, self._newest_ctime - _OVERLAP_NS)
        is_all = False
        while not is_all:
            files, is_all = self._list_changed(since)
            if not self._copy_all(files, deadline):
                return False
            since = max(since + 1, files[-1].changed if files else 0)
        self._publish_progress()
        return not self._held and not self._progress

    def _list_changed(self, since: int) -> tuple[Sequence[TensorFile], bool]:
        """Return changed files, and whether these are all."""
        began = time.monotonic()
        listed = json.loads(self._fetch(TENSORS, since))
        self._next = time.monotonic() + (time.monotonic() - began) * _LISTING_BACKOFF
        if listed is None:
            return (), True
        self._listed_at = listed["at"]
        if self._newest_ctime > self._listed_at:
            self._newest_ctime = 0
            raise Unavailable("The clock of a node was set back, so its tensors are listed again from the beginning.")
        self._make_folder(self._root)
        files = [TensorFile(*each) for each in listed["files"] if _TENSOR_FILES.fullmatch(each[0])]
        return files, listed["is_all"]

    def _copy_all(self, files: Sequence[TensorFile], deadline: float) -> bool:
        """Copy files in order. Return False if there was no time for all."""
        for file in files:
            if not file.is_progress and not self._copy(file, deadline):
                return False
            if file.is_progress and len(self._progress) < _MAX_LISTED:
                self._progress[file.path] = file.changed
            self._newest_ctime = max(self._newest_ctime, min(file.changed, self._listed_at))
        return True

    def _copy(self, file: TensorFile, deadline: float) -> bool:
        target = self._root / file.path
        if not file.grows and _is_same(target, file.changed):
            return True
        partial = target if file.grows else target.with_name(f"{target.name}.{file.changed}{_UNFINISHED}")
        self._make_folder(target.parent.parent)
        self._make_folder(target.parent)
        # Creates the file, even if it is empty.
        append_chunk(partial, FileChunk(file.path, 0, b""), mode=_FILE_MODE)
        size = partial.stat().st_size
        while size < file.size:
            if time.monotonic() > deadline:
                return False
            wanted = f"{TENSORS}/{0 if file.grows else file.changed}/{file.path}"
            data = self._fetch(wanted, size)[: file.size - size]
            if not data:
                # It was removed or replaced, as the next list will say.
                return True
            if not self._has_room(data):
                return False
            append_chunk(partial, FileChunk(wanted, size, data), mode=_FILE_MODE)
            size += len(data)
        if not file.grows:
            _finish(partial, target, file.changed)
        return True

    def _has_room(self, data: bytes) -> bool:
        """Whether the disk can take the data. Once it cannot, nothing more is copied."""
        if not reserve_of(self._root).leaves(len(data)):
            log.warning("tensors of another node are not copied, because the disk is nearly full")
            self._is_disk_full = True
        return not self._is_disk_full

    def _publish_progress(self) -> None:
        """Publish the progress files that were held, and hold new ones until the files they refer to are here."""
        for path, (data, changed) in self._held.items():
            partial = self._root / f"{path}{_UNFINISHED}"
            partial.unlink(missing_ok=True)
            append_chunk(partial, FileChunk(path, 0, data), mode=_FILE_MODE)
            _finish(partial, self._root / path, changed)
        self._held = {}
        size = 0
        for path, changed in list(self._progress.items()):
            if size >= PART_BYTES:
                return
            if not _is_same(self._root / path, changed):
                data = self._fetch(f"{TENSORS}/0/{path}", 0)
                size += len(data)
                self._held[path] = data, changed
            del self._progress[path]

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            # The umask may have removed some bits.
            folder.chmod(_FOLDER_MODE)


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """Return the status of an entry; None if it is not a regular file, has another name as well, or is gone."""
    with suppress(FileNotFoundError):
        found = entry.stat(follow_symlinks=False)
        return found if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None
    return None


def _is_same(path: Path, changed: int) -> bool:
    """Whether the copy is of that change. Copies carry the time of the change as their own."""
    return path.exists() and path.stat().st_mtime_ns == changed


def _finish(partial: Path, target: Path, changed: int) -> None:
    os.utime(partial, ns=(changed, changed))
    partial.replace(target)
