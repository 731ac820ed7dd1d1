"""The tensors of an instance on the node of another: what its keeper tells of them, and a copy that follows them.

`formats/tensors/layout.py` says which files there are. Segments grow at their ends, raw values appear whole, and how
far a worker has come is told by files that are replaced. Who reads the copy finds what was there at some moment: raw
values before the rows that tell of them, and all of that before what tells how far a worker has come.

A keeper tells what was changed since a moment, by the clock of the files themselves, so that a long history is told
once. It has to look through all raw values for it while more of them come; so it is asked the less often the longer
that takes.
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

from trainyard.engines.cluster.contract import Piece
from trainyard.engines.cluster.mirror import append
from trainyard.engines.cluster.parts import PART_BYTES
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.link.contract import InstanceSpec

TENSORS = "tensors"
NO_TENSORS = b"null"  # is told while there is no folder of them

# formats/tensors/layout.py has these words too, which takes numpy.
_NAME = r"(?!\.)[ -.0-~]{1,100}"  # in ASCII, and short enough to get a suffix
_FILES = re.compile(
    rf"(steps|histograms)/{_NAME}/{_NAME}\.arrows|values/{_NAME}/{_NAME}\.safetensors|{_NAME}\.manifest\.json|ended\.json"
)
_SEGMENT, _UNFINISHED, _VALUES = ".arrows", ".tmp", "values"
_FOLDERS = ("steps", "histograms", _VALUES)  # values come last, so that none is missed that a row tells of

_MOST_TOLD = 2000  # files at once
_OVERLAP_NS = 2_000_000_000  # told again: folders are not all read at one moment, and the clock of files is coarse
_LOOK_S = 1.0  # in which a look brings what it can, so that others get their turn
_REST = 10  # times as long as it took to be told, until it is asked for again
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644  # for the user of the job; others do not get into the folder of an instance

Fetch = Callable[[str, int], bytes]  # what `Keeper.part` of the instance answers

log = logging.getLogger(__name__)


def are_needed(spec: InstanceSpec) -> bool:
    """Whether rules are judged beside the program, on the first instance, for which they need the tensors of all."""
    return spec.debugger is not None and any(rule.is_beside or rule.source for rule in spec.debugger.rules)


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file as it was told of; `changed` is when that was last, in nanoseconds by the clock of its file system."""

    path: str
    size: int
    changed: int

    @property
    def grows(self) -> bool:
        return self.path.endswith(_SEGMENT)

    @property
    def is_telling(self) -> bool:
        """Whether it tells how far a worker has come, or that the program is over."""
        return "/" not in self.path


class TensorFiles:
    """The tensors of an instance on its own node: below a folder that the program cannot replace, which it may fill.

    No link is followed, and a file that has another name as well may be anybody's: neither is told of or read.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path

    def told(self, since: int) -> bytes:
        """The files that were changed then or later, the longest ago first, in JSON; null while there is no folder."""
        if not self._is_there():
            return NO_TENSORS
        asked_at = time.time_ns()
        files = nsmallest(_MOST_TOLD + 1, self._changed(since), key=lambda each: (each.changed, each.grows))
        told = [(each.path, each.size, each.changed) for each in files[:_MOST_TOLD]]
        return json.dumps({"at": asked_at, "files": told, "is_all": len(files) <= _MOST_TOLD}).encode()

    def read(self, wanted: str, offset: int) -> bytes:
        """Bytes of `<changed>/<path>`, and none where the file is another by now; with 0 it may be any."""
        changed, _, path = wanted.partition("/")
        if not changed.isdecimal() or not _FILES.fullmatch(path):
            raise InvalidRequest(f'"{wanted}" is no file of the tensors of an instance.')
        parent, _, name = path.rpartition("/")
        try:
            with self._opened(parent) as folder:
                descriptor = folder.open_file(name)
        except OSError:
            return b""
        try:
            found = os.fstat(descriptor)
            is_wanted = found.st_nlink == 1 and int(changed) in (0, found.st_ctime_ns)
            return os.pread(descriptor, PART_BYTES, offset) if is_wanted else b""
        finally:
            os.close(descriptor)

    def _is_there(self) -> bool:
        with suppress(OSError), self._opened(""):
            return True
        return False

    def _changed(self, since: int) -> Iterator[TensorFile]:
        yield from self._changed_in("", since)
        for kind in _FOLDERS:
            for worker in self._names(kind):
                yield from self._changed_in(f"{kind}/{worker}", since)

    def _changed_in(self, below: str, since: int) -> Iterator[TensorFile]:
        with suppress(OSError), self._opened(below) as folder:
            if below.startswith(f"{_VALUES}/") and os.fstat(folder.fileno()).st_ctime_ns < since:
                return
            with os.scandir(folder.fileno()) as entries:
                for entry in entries:
                    path = f"{below}/{entry.name}".lstrip("/")
                    if _FILES.fullmatch(path) and (found := _status(entry)) and found.st_ctime_ns >= since:
                        yield TensorFile(path, found.st_size, found.st_ctime_ns)

    def _names(self, below: str) -> Sequence[str]:
        with suppress(OSError), self._opened(below) as folder:
            return folder.names()
        return []

    def _opened(self, below: str) -> ConfinedFolder:
        return ConfinedFolder.open(self._root, f"{self._path}/{below}")


class TensorCopy:
    """The tensors of an instance on another node, as far as they were brought. Used by one thread.

    Killed at any moment it goes on where it is. What fails is raised, and tried again with the next look. A program may
    have more there than the disk here has room for: then no more is brought, and what is missing will not be judged.
    """

    def __init__(self, root: Path, fetch: Fetch) -> None:
        self._root = root
        self._fetch = fetch
        self._newest = 0  # when the last was changed of those that are here, by the clock there
        self._told_at = 0  # by the same clock
        self._telling: dict[str, int] = {}  # files that tell of others and are to be read, and when they were changed
        self._held: dict[str, tuple[bytes, int]] = {}  # such files, until all is here that they may tell of
        self._next = 0.0
        self._has_given_up = False

    def look(self, *, is_pressing: bool = False) -> bool:
        """Bring what is new, for a while, and whether that is all; if not pressing, only when it is time to."""
        if self._has_given_up:
            return True
        if time.monotonic() < self._next and not is_pressing:
            return False
        deadline = time.monotonic() + _LOOK_S
        since = max(0, self._newest - _OVERLAP_NS)
        is_all = False
        while not is_all:
            files, is_all = self._told(since)
            if not self._bring_all(files, deadline):
                return False
            since = max(since + 1, files[-1].changed if files else 0)
        self._tell()
        return not self._held and not self._telling

    def _told(self, since: int) -> tuple[Sequence[TensorFile], bool]:
        """Files that were changed, and whether these are all of them."""
        asked_at = time.monotonic()
        told = json.loads(self._fetch(TENSORS, since))
        self._next = time.monotonic() + (time.monotonic() - asked_at) * _REST
        if told is None:
            return (), True
        self._told_at = told["at"]
        if self._newest > self._told_at:
            self._newest = 0
            raise Unavailable("The clock of a node was set back, so the tensors there are looked through once more.")
        self._make_folder(self._root)
        return [TensorFile(*each) for each in told["files"] if _FILES.fullmatch(each[0])], told["is_all"]

    def _bring_all(self, files: Sequence[TensorFile], deadline: float) -> bool:
        """Bring files in their order; whether there was the time for it."""
        for file in files:
            if not file.is_telling and not self._bring(file, deadline):
                return False
            if file.is_telling and len(self._telling) < _MOST_TOLD:
                self._telling[file.path] = file.changed
            self._newest = max(self._newest, min(file.changed, self._told_at))
        return True

    def _bring(self, file: TensorFile, deadline: float) -> bool:
        target = self._root / file.path
        if not file.grows and _is_same(target, file.changed):
            return True
        place = target if file.grows else target.with_name(f"{target.name}.{file.changed}{_UNFINISHED}")
        self._make_folder(target.parent.parent)
        self._make_folder(target.parent)
        append(place, Piece(file.path, 0, b""), mode=_FILE_MODE)  # also of what is empty there has to be a file
        size = place.stat().st_size
        while size < file.size:
            if time.monotonic() > deadline:
                return False
            wanted = f"{TENSORS}/{0 if file.grows else file.changed}/{file.path}"
            data = self._fetch(wanted, size)[: file.size - size]
            if not data:  # it was taken away or replaced, of which the next look hears
                return True
            if not self._has_room(data):
                return False
            append(place, Piece(wanted, size, data), mode=_FILE_MODE)
            size += len(data)
        if not file.grows:
            _finish(place, target, file.changed)
        return True

    def _has_room(self, data: bytes) -> bool:
        """Whether the disk takes so much more; from when it does not, nothing is brought any more."""
        if not reserve_of(self._root).leaves(len(data)):
            log.warning("tensors of another node are left there, because the disk is nearly full")
            self._has_given_up = True
        return not self._has_given_up

    def _tell(self) -> None:
        """Put the files in place that were held, and hold those that there are now: all else may be ahead of them."""
        for path, (data, changed) in self._held.items():
            place = self._root / f"{path}{_UNFINISHED}"
            place.unlink(missing_ok=True)
            append(place, Piece(path, 0, data), mode=_FILE_MODE)
            _finish(place, self._root / path, changed)
        self._held = {}
        size = 0
        for path, changed in list(self._telling.items()):
            if size >= PART_BYTES:
                return
            if not _is_same(self._root / path, changed):
                data = self._fetch(f"{TENSORS}/0/{path}", 0)
                size += len(data)
                self._held[path] = data, changed
            del self._telling[path]

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            folder.chmod(_FOLDER_MODE)  # the umask may have taken bits away


def _status(entry: "os.DirEntry[str]") -> os.stat_result | None:
    """None for what is no file, has another name as well, or is gone."""
    with suppress(FileNotFoundError):
        found = entry.stat(follow_symlinks=False)
        return found if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None
    return None


def _is_same(path: Path, changed: int) -> bool:
    """Whether a file was brought as it was when it was changed then, which its own time says."""
    return path.exists() and path.stat().st_mtime_ns == changed


def _finish(place: Path, target: Path, changed: int) -> None:
    os.utime(place, ns=(changed, changed))
    place.replace(target)
