"""Packs the results of instances into archives in the object store, each complete or absent."""

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
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.link.contract import InstanceSpec
from trainyard.objects.contract import Attributes, ObjectAccess, ObjectWriter

# A constant, so that the same files give the same bytes. Not 0, because some tools accept no year before 1980.
_MODIFIED_AT = 315532800
# Weights hardly shrink, and higher levels take minutes.
_COMPRESSION_LEVEL = 1
_HEADERS = {"content-type": "application/gzip"}
_MAX_DEPTH = 200
# Bytes of sparse files that take no space on the disk, but time to pack.
_MAX_HOLE_BYTES = 64 * 1024**3
# The names of all entries are held in memory.
_MAX_ENTRIES = 500_000


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact in the store. `skipped` counts the sockets, devices and pipes, which cannot be packed.

    `clashes` counts the entries left out because a later folder has one of the same name; `clash` is one such name.
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
) -> StoredArtifact | None:
    """Pack the folders at `path` below all `roots` into one object; None, and nothing stored, when they are empty.

    A name in several folders is taken from the last. Calls `check` now and then; when that raises, nothing is stored.
    Links are packed as links and never followed.
    """
    with ExitStack() as stack:
        folders: list[ConfinedFolder] = []
        for root in roots:
            opened = stack.enter_context(ConfinedFolder.open(root))
            # Fails when the program has replaced the folder with something else.
            with suppress(OSError):
                folders.append(stack.enter_context(opened.open_folder(path)))
        filled = [folder for folder in folders if folder.names()]
        return _store(store, filled, where=where, check=check) if filled else None


def _store(
    store: ObjectAccess, folders: Sequence[ConfinedFolder], *, where: Location, check: Callable[[], None]
) -> StoredArtifact:
    writer = store.writer(where, Attributes(headers=_HEADERS))
    try:
        with _tar_gz(writer, check) as tar:
            builder = _ArchiveBuilder(tar)
            for folder in reversed(folders):
                builder.add_tree(folder)
        check()
        written = writer.commit(now=utc_now())
    except BaseException:
        writer.abort()
        raise
    return StoredArtifact(where, written.size, builder.skipped, builder.clashes, builder.clash)


def _location(spec: InstanceSpec, name: str) -> Location:
    return parse_s3_uri(f"{spec.output_path.rstrip('/')}/{spec.job_name}/output/{name}", spec.account)


class _ObjectFile(io.RawIOBase):
    """A file object that writes to the object store."""

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
        io.BufferedWriter(_ObjectFile(writer, check), 1 << 20) as buffered,
        gzip.GzipFile(
            filename="", fileobj=buffered, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0
        ) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        yield tar


class _ArchiveBuilder:
    """Adds trees to one archive. The first tree with a name wins, but folders are merged."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.skipped = 0
        self.clashes = 0
        self.clash = ""
        self._tar = tar
        # Whether each path that was added is a folder.
        self._added: dict[str, bool] = {}
        self._hole_bytes = 0

    def add_tree(self, folder: ConfinedFolder, above: str = "") -> None:
        """Add everything below a folder, in the order of names."""
        if above.count("/") > _MAX_DEPTH:
            raise CannotRun(f"Folders nested more than {_MAX_DEPTH} deep cannot be packed.", FailureKind.USER_ERROR)
        subfolders = [name for name in self._names(folder) if self._add(folder, name, f"{above}{name}")]
        for name in subfolders:
            with folder.open_folder(name) as inner:
                self.add_tree(inner, f"{above}{name}/")

    def _names(self, folder: ConfinedFolder) -> list[str]:
        """The names in a folder, read up to the limit; CannotRun when there are more."""
        left = _MAX_ENTRIES - len(self._added)
        with os.scandir(folder.fileno()) as entries:
            names = sorted(entry.name for entry in islice(entries, left + 1))
        if len(names) > left:
            raise CannotRun(f"More than {_MAX_ENTRIES} files and folders cannot be packed.", FailureKind.USER_ERROR)
        return names

    def _count_holes(self, path: str, status: os.stat_result) -> None:
        self._hole_bytes += max(0, status.st_size - status.st_blocks * 512) if stat.S_ISREG(status.st_mode) else 0
        if self._hole_bytes > _MAX_HOLE_BYTES:
            raise CannotRun(
                f'"{path[:200]}" claims to have {status.st_size} bytes but is nearly empty, so it cannot be packed.',
                FailureKind.USER_ERROR,
            )

    def _add(self, folder: ConfinedFolder, name: str, path: str) -> bool:
        """Add an entry unless it clashes. Return whether it is a folder whose entries must be added too."""
        status = folder.status(name)
        if status is None:
            return False
        self._count_holes(path, status)
        is_folder = stat.S_ISDIR(status.st_mode)
        if path not in self._added:
            self._added[path] = is_folder
            self.skipped += not _add_entry(self._tar, path, folder=folder, mode=status.st_mode)
            return is_folder
        if is_folder and self._added[path]:
            return True
        self.clashes += 1
        self.clash = self.clash or path
        return False


def _add_entry(tar: tarfile.TarFile, path: str, *, folder: ConfinedFolder, mode: int) -> bool:
    entry = tarfile.TarInfo(path)
    entry.mtime = _MODIFIED_AT
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
        status = os.fstat(descriptor)
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
        tar.addfile(entry, file)
