"""Restores the objects under a location as files that the program owns."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.foundation.clock import to_micros
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.channels import copy_object
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.layout import ProgramUser
from trainyard.objects.contract import ObjectAccess, ObjectInfo
from trainyard.objects.filesystem import FilesystemObjects

_BATCH = 1000
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file that was restored, and its object."""

    path: str
    stamp: FileStamp
    info: ObjectInfo


def restore_folder(
    store: ObjectAccess,
    location: Location,
    folder: ConfinedFolder,
    *,
    owner: ProgramUser,
    check: Callable[[], None],
    on_skipped: Callable[[str], None],
) -> Iterator[RestoredFile]:
    """Restore every object whose key begins with that of the location as a file in the folder.

    The files are copies, because the program may change them. Keys that cannot be file names go to `on_skipped`.
    `check` is called before each object, and may raise. Objects that are deleted meanwhile are skipped.
    """
    restore = _FolderRestore(location, folder, owner, check, on_skipped)
    if isinstance(store, FilesystemObjects):
        return restore.copy_objects(store)
    return restore.download_objects(store)


def key_to_path(rest: str) -> PurePosixPath | None:
    """Return the file path for the rest of a key; None when no file can have it."""
    parts = rest.removesuffix("/").split("/")
    if "\0" in rest or any(part in ("", ".", "..") or len(part.encode()) > _NAME_BYTES for part in parts):
        return None
    return PurePosixPath(*parts)


@dataclass(frozen=True, slots=True)
class _FolderRestore:
    """The arguments of `restore_folder`."""

    location: Location
    folder: ConfinedFolder
    owner: ProgramUser
    check: Callable[[], None]
    on_skipped: Callable[[str], None]

    def copy_objects(self, store: FilesystemObjects) -> Iterator[RestoredFile]:
        for key in _keys(store, self.location):
            self.check()
            path = self._path(key)
            if path is None:
                self.on_skipped(key)
                continue
            try:
                if key.endswith("/"):
                    # An empty object by which some tools mark a folder.
                    self._make_folders(path)
                    continue
                with suppress(NotFound):
                    yield self._copy(store, self._where(key), path)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                # "a" and "a/b" cannot both be files.
                self.on_skipped(key)

    def download_objects(self, store: ObjectAccess) -> Iterator[RestoredFile]:
        """Download many objects at once, because each request takes time."""
        from trainyard.instance.agent.data.downloads import FileTree, download_newest
        from trainyard.objects.remote.downloads import DownloadRequest
        from trainyard.objects.remote.parallel import run_watched

        tree, wanted = FileTree(), []
        for key in run_watched(lambda: list(_keys(store, self.location)), check=self.check):
            path = self._path(key)
            if path is None or not tree.reserve_path(f"{path}/" if key.endswith("/") else str(path)):
                self.on_skipped(key)
                continue
            self._make_folders(path if key.endswith("/") else path.parent)
            if not key.endswith("/"):
                wanted.append(DownloadRequest(self._where(key), self._folder_path / path))
        for found in download_newest(store, wanted, what="the restored folder", check=self.check):
            info = found.version.info
            assert info is not None, "objects that were not listed were looked up"
            restored = str(found.wanted.place.relative_to(self._folder_path))
            with os.fdopen(self.folder.open_file(restored), "rb", buffering=0) as file:
                yield self._set_owner_and_time(file.fileno(), restored, info)

    def _copy(self, store: FilesystemObjects, where: Location, path: PurePosixPath) -> RestoredFile:
        self._make_folders(path.parent)
        with store.open(where) as reader, os.fdopen(self.folder.create_file(str(path)), "wb", buffering=0) as copy:
            copy_object(reader, copy, check=self.check)
            return self._set_owner_and_time(copy.fileno(), str(path), reader.info)

    def _path(self, key: str) -> PurePosixPath | None:
        return key_to_path(key.removeprefix(self.location.key))

    def _where(self, key: str) -> Location:
        return Location(self.location.bucket, key)

    def _make_folders(self, path: PurePosixPath) -> None:
        self.folder.make_folder(str(path), owner=self.owner.uid).close()

    @property
    def _folder_path(self) -> Path:
        """A path to the open folder, for downloads."""
        return Path(f"/proc/self/fd/{self.folder.fileno()}")

    def _set_owner_and_time(self, descriptor: int, path: str, info: ObjectInfo) -> RestoredFile:
        if self.owner.uid is not None:
            os.fchown(descriptor, self.owner.uid, self.owner.uid)
        # Scripts find the newest checkpoint by its modification time.
        written_ns = to_micros(info.modified_at) * 1000
        os.utime(descriptor, ns=(written_ns, written_ns))
        return RestoredFile(path, FileStamp.of(os.fstat(descriptor)), info)


def _keys(store: ObjectAccess, location: Location) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = store.list_objects(location.bucket, prefix=location.key, after=after, limit=_BATCH)
        yield from (each.key for each in page.objects if each.key != location.key)
        after = page.next_after
