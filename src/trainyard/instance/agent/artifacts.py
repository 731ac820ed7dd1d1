"""The results of an instance, packed and put into the object store, each whole or absent."""

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.link.contract import InstanceSpec
from trainyard.objects.contract import Attributes, ObjectAccess, ObjectWriter

# The same files give the same bytes whenever and by whomever they were written. Not 0: some tools know no year before
# 1980.
_TIME = 315532800
_LEVEL = 1  # weights hardly shrink, and higher levels cost minutes
_TYPE = {"content-type": "application/gzip"}
_DEEPEST = 200
_MOST_HOLES = 64 * 1024**3  # bytes of all files that take no space on the disk, but time to pack
_MOST_ENTRIES = 500_000  # whose names are kept in mind


@dataclass(frozen=True, slots=True)
class Stored:
    """An artifact in the store. `skipped` are the entries that cannot be in an archive: sockets, devices, pipes.

    `clashes` are the entries left out because a later folder has one of the same name, and `clash` is such a name.
    """

    where: Location
    size: int
    skipped: int
    clashes: int = 0
    clash: str = ""


def model_location(spec: InstanceSpec) -> Location:
    return _location(spec, "model.tar.gz")


def output_location(spec: InstanceSpec) -> Location:
    return _location(spec, "output.tar.gz")


def store_folders(
    store: ObjectAccess, roots: Sequence[Path], path: str, *, where: Location, check: Callable[[], None]
) -> Stored | None:
    """Pack the folders at `path` below all `roots` into one object; None, and nothing stored, when they are empty.

    What several of them have is taken from the last. `check` is called now and then and may raise to end it, with
    nothing stored. Links are packed as they are and never followed.
    """
    with ExitStack() as stack:
        folders: list[ConfinedFolder] = []
        for root in roots:
            opened = stack.enter_context(ConfinedFolder.open(root))
            with suppress(OSError):  # the program has put something else in its place
                folders.append(stack.enter_context(opened.open_folder(path)))
        filled = [folder for folder in folders if folder.names()]
        return _store(store, filled, where=where, check=check) if filled else None


def _store(
    store: ObjectAccess, folders: Sequence[ConfinedFolder], *, where: Location, check: Callable[[], None]
) -> Stored:
    writer = store.writer(where, Attributes(headers=_TYPE))
    try:
        with _tar_gz(writer, check) as tar:
            packing = _Packing(tar)
            for folder in reversed(folders):
                packing.add_tree(folder)
        check()
        written = writer.commit(now=utc_now())
    except BaseException:
        writer.abort()
        raise
    return Stored(where, written.size, packing.skipped, packing.clashes, packing.clash)


def _location(spec: InstanceSpec, name: str) -> Location:
    return parse_s3_uri(f"{spec.output_path.rstrip('/')}/{spec.job_name}/output/{name}", spec.account)


class _Sink(io.RawIOBase):
    """An object being written, as a file."""

    def __init__(self, writer: ObjectWriter, check: Callable[[], None]) -> None:
        self._writer = writer
        self._check = check

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        assert isinstance(data, (bytes, bytearray, memoryview)), "only bytes come from a compressor"
        self._check()
        self._writer.write(bytes(data))
        return len(data)


@contextmanager
def _tar_gz(writer: ObjectWriter, check: Callable[[], None]) -> Iterator[tarfile.TarFile]:
    with (
        io.BufferedWriter(_Sink(writer, check), 1 << 20) as buffered,
        gzip.GzipFile(filename="", fileobj=buffered, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        yield tar


class _Packing:
    """Puts trees into one archive. A name that an earlier tree took stays that one's, but folders are joined."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.skipped = 0
        self.clashes = 0
        self.clash = ""
        self._tar = tar
        self._taken: dict[str, bool] = {}  # names, and whether they are folders
        self._holes = 0

    def add_tree(self, folder: ConfinedFolder, above: str = "") -> None:
        """Everything below the folder, in the order of names."""
        if above.count("/") > _DEEPEST:
            raise CannotRun(f"Folders nested more than {_DEEPEST} deep cannot be packed.", FailureKind.USER_ERROR)
        entered = [name for name in self._names(folder) if self._add(folder, name, f"{above}{name}")]
        for name in entered:
            with folder.open_folder(name) as inner:
                self.add_tree(inner, f"{above}{name}/")

    def _names(self, folder: ConfinedFolder) -> list[str]:
        """What lies in a folder; CannotRun when that is too much, of which no more than that is read."""
        left = _MOST_ENTRIES - len(self._taken)
        with os.scandir(folder.fileno()) as entries:
            names = sorted(entry.name for entry in islice(entries, left + 1))
        if len(names) > left:
            raise CannotRun(f"More than {_MOST_ENTRIES} files and folders cannot be packed.", FailureKind.USER_ERROR)
        return names

    def _count_holes(self, path: str, found: os.stat_result) -> None:
        self._holes += max(0, found.st_size - found.st_blocks * 512) if stat.S_ISREG(found.st_mode) else 0
        if self._holes > _MOST_HOLES:
            raise CannotRun(
                f'"{path[:200]}" says it has {found.st_size} bytes but is nearly empty, so it cannot be packed.',
                FailureKind.USER_ERROR,
            )

    def _add(self, folder: ConfinedFolder, name: str, path: str) -> bool:
        """Add an entry, unless it clashes; whether it is a folder whose entries are to be added too."""
        found = folder.status(name)
        if found is None:
            return False
        self._count_holes(path, found)
        is_folder = stat.S_ISDIR(found.st_mode)
        if path not in self._taken:
            self._taken[path] = is_folder
            self.skipped += not _add_entry(self._tar, path, folder=folder, mode=found.st_mode)
            return is_folder
        if is_folder and self._taken[path]:
            return True
        self.clashes += 1
        self.clash = self.clash or path
        return False


def _add_entry(tar: tarfile.TarFile, path: str, *, folder: ConfinedFolder, mode: int) -> bool:
    entry = tarfile.TarInfo(path)
    entry.mtime = _TIME
    name = path.rpartition("/")[2]
    if stat.S_ISDIR(mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    elif stat.S_ISLNK(mode):
        entry.type, entry.mode = tarfile.SYMTYPE, 0o777
        entry.linkname = folder.read_link(name)
        tar.addfile(entry)
    elif stat.S_ISREG(mode):
        _add_file(tar, entry, descriptor=folder.open_file(name))
    else:
        return False
    return True


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, *, descriptor: int) -> None:
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & 0o111 else 0o644
        tar.addfile(entry, file)
