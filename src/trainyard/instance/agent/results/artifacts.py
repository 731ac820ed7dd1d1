"""Packs the results of instances into archives in the object store, each complete or absent."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.jobs.result_locations import result_uri
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.instance.agent.results.merged_tree import MergedTree, TreeItem
from trainyard.link.contract import InstanceSpec
from trainyard.objects.contract import Attributes, ObjectAccess, ObjectWriter
from trainyard.objects.encryption.headers import key_headers

# A constant, so that the same files give the same bytes. Not 0, because some tools accept no year before 1980.
_MODIFIED_AT = 315532800
# Weights hardly shrink, and higher levels take minutes.
_COMPRESSION_LEVEL = 1
_HEADERS = {"content-type": "application/gzip"}


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """An artifact in the store: an archive, or the objects under a prefix, with their size together.

    `skipped` counts the entries that it cannot hold: sockets, devices and pipes; as objects also some links and names.
    `clashes` counts the entries left out because a later folder has one of the same name; `clash` is one such name.
    """

    where: Location
    size: int
    skipped: int
    clashes: int = 0
    clash: str = ""


def artifact_location(spec: InstanceSpec, kind: str) -> Location:
    uri = result_uri(spec.output_path, spec.job_name, kind, is_compressed=spec.is_output_compressed)
    return parse_s3_uri(uri, spec.account)


def store_folders(
    store: ObjectAccess,
    roots: Sequence[Path],
    path: str,
    *,
    where: Location,
    check: Callable[[], None],
    output_key: str = "",
) -> StoredArtifact | None:
    """Pack the folders at `path` below all `roots` into one object; None, and nothing stored, when they are empty.

    `output_key` encrypts the object; without one, the bucket decides. A name in several folders is taken from the last.
    Calls `check` now and then; when that raises, nothing is stored. Links are packed as links and never followed.
    """
    with open_filled_folders(roots, path) as folders:
        attributes = Attributes(_HEADERS | key_headers(output_key))
        return _store(store, folders, attributes, where=where, check=check) if folders else None


@contextmanager
def open_filled_folders(roots: Sequence[Path], path: str) -> Iterator[Sequence[ConfinedFolder]]:
    """Open the folders at `path` below all `roots` that have any entry, in their order."""
    with ExitStack() as stack:
        folders: list[ConfinedFolder] = []
        for root in roots:
            opened = stack.enter_context(ConfinedFolder.open(root))
            # Fails when the program has replaced the folder with something else.
            with suppress(OSError):
                folders.append(stack.enter_context(opened.open_folder(path)))
        yield [folder for folder in folders if folder.names()]


def _store(
    store: ObjectAccess,
    folders: Sequence[ConfinedFolder],
    attributes: Attributes,
    *,
    where: Location,
    check: Callable[[], None],
) -> StoredArtifact:
    writer = store.writer(where, attributes)
    tree, skipped = MergedTree(), 0
    try:
        with _tar_gz(writer, check) as tar:
            for folder in reversed(folders):
                skipped += sum(not _add_entry(tar, item) for item in tree.add(folder))
        check()
        written = writer.commit(now=utc_now())
    except BaseException:
        writer.abort()
        raise
    return StoredArtifact(where, written.size, skipped, tree.clashes, tree.clash)


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


def _add_entry(tar: tarfile.TarFile, item: TreeItem) -> bool:
    """Add an entry to an archive; return False if archives cannot hold it."""
    entry = tarfile.TarInfo(item.path)
    entry.mtime = _MODIFIED_AT
    if item.is_folder:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    elif item.is_link:
        entry.type, entry.mode = tarfile.SYMTYPE, 0o777
        entry.linkname = item.folder.read_link(item.name)
        tar.addfile(entry)
    elif item.is_file:
        _add_file(tar, entry, descriptor=item.folder.open_file(item.name))
    else:
        return False
    return True


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, *, descriptor: int) -> None:
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        entry.size = status.st_size
        entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
        tar.addfile(entry, file)
