"""The results of an instance, packed and put into the object store, each whole or absent."""

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.confined import open_file, open_folder
from trainyard.link.contract import InstanceSpec
from trainyard.objects.contract import Attributes, ObjectWriter
from trainyard.objects.filesystem import FilesystemObjects

# The same files give the same bytes whenever and by whomever they were written. Not 0: some tools know no year before
# 1980.
_TIME = 315532800
_LEVEL = 1  # weights hardly shrink, and higher levels cost minutes
_TYPE = {"content-type": "application/gzip"}


@dataclass(frozen=True, slots=True)
class Stored:
    """An artifact in the store. `skipped` are the entries that cannot be in an archive: sockets, devices, pipes."""

    where: Location
    size: int
    skipped: int


def model_location(spec: InstanceSpec) -> Location:
    return _location(spec, "model.tar.gz")


def output_location(spec: InstanceSpec) -> Location:
    """Where the output of this instance goes: the first one's to the name that clients fetch."""
    return _location(spec, "output.tar.gz" if spec.uploads else f"output-{spec.instance}.tar.gz")


def store_folder(
    store: FilesystemObjects, ml: Path, path: str, *, where: Location, check: Callable[[], None]
) -> Stored | None:
    """Pack the folder at `path` below `ml` into one object; None, and nothing stored, when there is nothing in it.

    `check` is called now and then and may raise to end it, with nothing stored. Links are packed as they are and never
    followed.
    """
    with open_folder(ml, path) as folder:
        if folder is None or not os.listdir(folder):  # noqa: PTH208 - a descriptor has no path
            return None
        return _store(store, folder, where=where, check=check)


def _store(store: FilesystemObjects, folder: int, *, where: Location, check: Callable[[], None]) -> Stored:
    writer = store.writer(where, Attributes(headers=_TYPE))
    try:
        with _tar_gz(writer, check) as tar:
            skipped = _add_tree(tar, folder)
        written = writer.commit(now=utc_now())
    except BaseException:
        writer.abort()
        raise
    return Stored(where, written.size, skipped)


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


def _add_tree(tar: tarfile.TarFile, folder: int) -> int:
    """Everything below the folder in the order of names; how many entries cannot be packed."""
    skipped = 0
    for parent, folders, files, descriptor in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = f"{parent}/{name}".removeprefix("./")
            skipped += not _add_entry(tar, path, name=name, parent=descriptor)
    return skipped


def _add_entry(tar: tarfile.TarFile, path: str, *, name: str, parent: int) -> bool:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    entry = tarfile.TarInfo(path)
    entry.mtime = _TIME
    if stat.S_ISDIR(found.st_mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.mode = tarfile.SYMTYPE, 0o777
        entry.linkname = os.readlink(name, dir_fd=parent)
        tar.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        _add_file(tar, entry, name=name, parent=parent)
    else:
        return False
    return True


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, *, name: str, parent: int) -> None:
    descriptor = open_file(name, parent)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & 0o111 else 0o644
        tar.addfile(entry, file)
