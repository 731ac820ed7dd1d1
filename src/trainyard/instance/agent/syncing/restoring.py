"""The objects under a location, as files of the program's own."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainyard.foundation.clock import to_micros
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound
from trainyard.foundation.locations import Location
from trainyard.instance.agent.channels import copy_file
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.syncing.looks import Look
from trainyard.objects.contract import ObjectAccess, ObjectInfo
from trainyard.objects.filesystem import FilesystemObjects

_BATCH = 1000
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that was made, and the object that it is the same as."""

    path: str
    look: Look
    info: ObjectInfo


def restore(
    store: ObjectAccess,
    location: Location,
    folder: ConfinedFolder,
    *,
    owner: Owner,
    check: Callable[[], None],
    skipped: Callable[[str], None],
) -> Iterator[Restored]:
    """Make every object whose key begins with that of the location a file of the folder.

    They are copies, since the program may change them. `skipped` is told the key of what no file can be; `check` is
    called before each and may raise to end it. What is deleted meanwhile is passed over.
    """
    restoring = _Restoring(location, folder, owner, check, skipped)
    if isinstance(store, FilesystemObjects):
        return restoring.copied(store)
    return restoring.downloaded(store)


def file_path(rest: str) -> PurePosixPath | None:
    """The file that has this rest of a key for its path; None when there can be none."""
    parts = rest.removesuffix("/").split("/")
    if "\0" in rest or any(part in ("", ".", "..") or len(part.encode()) > _NAME_BYTES for part in parts):
        return None
    return PurePosixPath(*parts)


@dataclass(frozen=True, slots=True)
class _Restoring:
    """What `restore` was asked for, by the names that it has there."""

    location: Location
    folder: ConfinedFolder
    owner: Owner
    check: Callable[[], None]
    skipped: Callable[[str], None]

    def copied(self, store: FilesystemObjects) -> Iterator[Restored]:
        for key in _keys(store, self.location):
            self.check()
            path = self._path(key)
            if path is None:
                self.skipped(key)
                continue
            try:
                if key.endswith("/"):  # an empty object by which some tools show a folder
                    self._make_folders(path)
                    continue
                with suppress(NotFound):
                    yield self._copy(store, self._where(key), path)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):  # "a" and "a/b" cannot both be files
                self.skipped(key)

    def downloaded(self, store: ObjectAccess) -> Iterator[Restored]:
        """Many at once, for each takes its time."""
        from trainyard.instance.agent.downloads import FileTree, bring_newest
        from trainyard.objects.remote.crew import do_attended
        from trainyard.objects.remote.downloading import Wanted

        tree, wanted = FileTree(), []
        for key in do_attended(lambda: list(_keys(store, self.location)), check=self.check):
            path = self._path(key)
            if path is None or not tree.take(f"{path}/" if key.endswith("/") else str(path)):
                self.skipped(key)
                continue
            self._make_folders(path if key.endswith("/") else path.parent)
            if not key.endswith("/"):
                wanted.append(Wanted(self._where(key), self._place / path))
        for found in bring_newest(store, wanted, what="what is restored", check=self.check):
            info = found.version.info
            assert info is not None, "what was not listed was looked up"
            brought = str(found.wanted.place.relative_to(self._place))
            with os.fdopen(self.folder.open_file(brought), "rb", buffering=0) as file:
                yield self._as_it_was(file.fileno(), brought, info)

    def _copy(self, store: FilesystemObjects, where: Location, path: PurePosixPath) -> Restored:
        self._make_folders(path.parent)
        with store.open(where) as reader, os.fdopen(self.folder.create_file(str(path)), "wb", buffering=0) as copy:
            copy_file(reader.file.fileno(), copy)
            return self._as_it_was(copy.fileno(), str(path), reader.info)

    def _path(self, key: str) -> PurePosixPath | None:
        return file_path(key.removeprefix(self.location.key))

    def _where(self, key: str) -> Location:
        return Location(self.location.bucket, key)

    def _make_folders(self, path: PurePosixPath) -> None:
        self.folder.make_folder(str(path), owner=self.owner.uid).close()

    @property
    def _place(self) -> Path:
        """The folder as those know it who download many files at once."""
        return Path(f"/proc/self/fd/{self.folder.fileno()}")

    def _as_it_was(self, descriptor: int, path: str, info: ObjectInfo) -> Restored:
        if self.owner.uid is not None:
            os.fchown(descriptor, self.owner.uid, self.owner.uid)
        # Scripts look for the newest one by its time.
        written_ns = to_micros(info.modified_at) * 1000
        os.utime(descriptor, ns=(written_ns, written_ns))
        return Restored(path, Look.of(os.fstat(descriptor)), info)


def _keys(store: ObjectAccess, location: Location) -> Iterator[str]:
    after: str | None = ""
    while after is not None:
        page = store.list_objects(location.bucket, prefix=location.key, after=after, limit=_BATCH)
        yield from (found.key for found in page.objects if found.key != location.key)
        after = page.next_after
