"""Stores the results of instances as objects under a prefix, one for each file.

The object store has no transactions over many large objects. So what an earlier attempt or job left under the prefix is
deleted first, and when anything fails, so is what was stored. If the agent is killed in between, the yard does that.
"""

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.locations import Location
from trainyard.instance.agent.data.sync.batches import GROUP_BYTES, GROUP_FILES, SMALL_BYTES
from trainyard.instance.agent.results.artifacts import StoredArtifact, open_filled_folders
from trainyard.instance.agent.results.merged_tree import MergedTree, TreeItem
from trainyard.objects.contract import Attributes, NewObject, ObjectAccess, WriteResult, WritesBatches
from trainyard.objects.encryption.headers import key_headers

_CHUNK_BYTES = 1 << 20
_KEY_BYTES = 1024


def store_files(
    store: ObjectAccess,
    roots: Sequence[Path],
    path: str,
    *,
    where: Location,
    check: Callable[[], None],
    output_key: str = "",
) -> StoredArtifact | None:
    """Store the files of the folders at `path` below all `roots` under a prefix; None when there are none.

    `output_key` encrypts the objects; without one, the bucket decides. A name in several folders is taken from the
    last. Calls `check` now and then; when that raises, nothing is left under the prefix. A link to a file of the same
    folder is stored as a copy of it; no other link is followed.
    """
    with open_filled_folders(roots, path) as folders:
        if not folders:
            return None
        delete_prefix(store, where)
        try:
            return _TreeUpload(store, where, check, Attributes(key_headers(output_key))).store(folders)
        except BaseException:
            # The reason of the failure matters more. The yard deletes what is left when the attempt has ended.
            with suppress(TrainyardError):
                delete_prefix(store, where)
            raise


def delete_prefix(store: ObjectAccess, where: Location) -> None:
    """Delete all objects under a prefix."""
    while found := store.list_objects(where.bucket, prefix=where.key).objects:
        for each in found:
            store.delete(Location(where.bucket, each.key))


class _TreeUpload:
    """One upload of merged folders. Small files are written in groups if the store supports that."""

    def __init__(self, store: ObjectAccess, where: Location, check: Callable[[], None], attributes: Attributes) -> None:
        self._store = store
        self._attributes = attributes
        self._where = where
        self._check = check
        self._tree = MergedTree()
        self._group: list[NewObject] = []
        self._group_bytes = 0
        self._files = 0
        self._size = 0
        self._skipped = 0

    def store(self, folders: Sequence[ConfinedFolder]) -> StoredArtifact | None:
        for folder in reversed(folders):
            for item in self._tree.add(folder):
                self._add(folder, item)
        self._write_group()
        if not self._files:
            return None
        return StoredArtifact(self._where, self._size, self._skipped, self._tree.clashes, self._tree.clash)

    def _add(self, root: ConfinedFolder, item: TreeItem) -> None:
        if item.is_folder:
            return
        where, descriptor = self._location(item.path), _open(root, item)
        if where is None or descriptor is None:
            self._skipped += 1
            if descriptor is not None:
                os.close(descriptor)
            return
        try:
            self._put(where, descriptor)
        finally:
            os.close(descriptor)
        self._files += 1

    def _location(self, path: str) -> Location | None:
        """Return where a file is stored; None if its name cannot be part of a key."""
        try:
            key = f"{self._where.key}{path}"
            return Location(self._where.bucket, key) if len(key.encode()) <= _KEY_BYTES else None
        except UnicodeEncodeError:
            return None

    def _put(self, where: Location, descriptor: int) -> None:
        self._check()
        size = os.fstat(descriptor).st_size
        if isinstance(self._store, WritesBatches) and size <= SMALL_BYTES:
            self._group.append(NewObject(where, os.pread(descriptor, size, 0), self._attributes))
            self._group_bytes += size
            if len(self._group) >= GROUP_FILES or self._group_bytes >= GROUP_BYTES:
                self._write_group()
            return
        writer = self._store.writer(where, self._attributes)
        try:
            for chunk in _chunks(descriptor):
                self._check()
                writer.write(chunk)
            self._size += writer.commit(now=utc_now()).size
        except BaseException:
            writer.abort()
            raise

    def _write_group(self) -> None:
        if not self._group:
            return
        assert isinstance(self._store, WritesBatches), "only then there is a group"
        for outcome in self._store.put_batch(self._group, now=utc_now()):
            if not isinstance(outcome, WriteResult):
                raise outcome
            self._size += outcome.size
        self._group, self._group_bytes = [], 0


def _open(root: ConfinedFolder, item: TreeItem) -> int | None:
    """Open a file, or the file of the same tree that a link names; None for anything else."""
    if item.is_file:
        return item.folder.open_file(item.name)
    if not item.is_link:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(item.path), item.folder.read_link(item.name)))
    if target.startswith(("/", "../")):
        return None
    try:
        return root.open_file(target)
    except OSError:
        return None


def _chunks(descriptor: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
        yield chunk
        offset += len(chunk)
