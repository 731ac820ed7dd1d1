"""Upload local files and folders as inputs of jobs. Uploads are addressed by their content.

`trainyard.foundation.input_trees` defines where they are stored. Two runs cannot mix their files, because the name of a
tree is the digest of its content, and jobs only see committed trees. The server copies files that an earlier upload has
sent.
"""

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.file_digests import FileDigest, FileDigests, encode_digest
from trainyard._sdk.storage.progress import ByteProgress, ShowProgress, ignore_progress
from trainyard._sdk.storage.transfers import ListedObject, ObjectAddress, copy_content, list_objects, upload_content
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.input_trees import (
    COMMITS,
    HELD_FOR,
    MANIFESTS,
    files_prefix,
    holds_prefix,
    new_tree,
)
from trainyard.wire.client import CallFailed

_FOLDER_CONTENT = FileDigest(0, encode_digest(hashlib.sha256(b"").digest()))
_THREADS = 4
# An attempt fails only if another client has succeeded.
_MAX_ATTEMPTS = 100
_RENEW_AFTER_S = HELD_FOR.total_seconds() / 12
# How many earlier uploads are searched for files that need not be sent again.
_MAX_MANIFESTS = 16
# HTTP statuses of an object that does not exist or has changed.
_GONE = (404, 412)


@dataclass(frozen=True, slots=True)
class UploadedInput:
    """The location of an uploaded file or folder, and how much was sent for it."""

    uri: str
    files: int
    sent_files: int
    sent_bytes: int


class InputUploads:
    """Uploads inputs for jobs that are created in the block of this context manager.

    A hold keeps garbage collection from removing an upload before a job uses it. Holds are released at the end of the
    block; if the block fails, they expire after an hour.
    """

    def __init__(self, api: Api, bucket: str, *, cache: Path) -> None:
        self._api, self._bucket, self._cache = api, bucket, cache
        self._holds: list[_UploadHold] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            for hold in self._holds:
                hold.release()

    def upload(self, path: Path, *, show: ShowProgress = ignore_progress) -> UploadedInput:
        """Upload a file or the content of a folder, unless the same content is there already.

        `show` is called with the bytes that are done and with their total, by several threads.
        Raises InvalidRequest for what cannot be uploaded, and FileChanged if a file changes during the upload.
        """
        found = dict(_walk(path))
        if not found:
            raise InvalidRequest(f'The folder "{path}" is empty; there is nothing to upload.')
        with FileDigests(self._cache) as digests:
            contents = {name: _content(digests, file) for name, file in found.items()}
        tree = _InputTree(_digest_of(contents), contents, found)
        committed = self._find_committed(tree)
        return committed or self._store(tree, ByteProgress(tree.size, show))

    def _find_committed(self, tree: "_InputTree") -> UploadedInput | None:
        """Return a complete upload of the same content and hold it; None if there is none."""
        for _ in range(_MAX_ATTEMPTS):
            commits = list(list_objects(self._api, self._bucket, f"{COMMITS}{tree.digest}-"))
            for commit in commits:
                upload = commit.key.removeprefix(COMMITS)
                hold = self._hold(upload)
                if not self._is_complete(upload, tree):
                    self._delete_commit(commit)
                # Garbage collection deletes a commit only if its ETag is unchanged. Writing it makes that fail.
                elif self._write_commit(upload, IfMatch=commit.etag):
                    self._holds.append(hold)
                    return self._result(upload, tree)
                hold.release()
            if not commits:
                return None
        raise Unavailable(f"The commits {COMMITS}{tree.digest}-… in {self._bucket} keep changing; try again.")

    def _store(self, tree: "_InputTree", progress: ByteProgress) -> UploadedInput:
        upload = new_tree(tree.digest)
        hold = self._hold(upload)
        self._write_manifest(upload, tree, etags={})
        sources = self._sources(tree, upload)
        sent: list[int] = []

        def store(name: str) -> str:
            hold.renew_if_due()
            target, content = ObjectAddress(self._bucket, files_prefix(upload) + name), tree.contents[name]
            path, source = tree.paths[name], sources.get(content.checksum)
            if path is None:
                response = self._api.call("s3", "PutObject", Bucket=target.bucket, Key=target.key, Body=b"")
                return str(response["ETag"])
            etag = copy_content(self._api, source, content, target=target) if source else None
            if etag is not None:
                progress.add(content.size)
                return etag
            etag = upload_content(
                self._api, path, content, target=target, before_part=hold.renew_if_due, after_part=progress.add
            )
            # Appending to a list is safe between threads.
            sent.append(content.size)
            return etag

        etags = dict(zip(tree.paths, _in_parallel(store, list(tree.paths)), strict=True))
        self._write_manifest(upload, tree, etags=etags)
        hold.renew()
        self._write_commit(upload)
        self._holds.append(hold)
        return self._result(upload, tree, sent=sent)

    def _result(self, upload: str, tree: "_InputTree", *, sent: Sequence[int] = ()) -> UploadedInput:
        uri = f"s3://{self._bucket}/{files_prefix(upload)}"
        return UploadedInput(uri, len(tree.contents), len(sent), sum(sent))

    def _hold(self, upload: str) -> "_UploadHold":
        return _UploadHold(self._api, ObjectAddress(self._bucket, f"{holds_prefix(upload)}{secrets.token_hex(8)}"))

    def _write_commit(self, upload: str, **condition: str) -> bool:
        """Write the commit of an upload. Return False if the condition does not hold."""
        # The content is random, so that every use changes the ETag.
        request = {"Bucket": self._bucket, "Key": f"{COMMITS}{upload}", "Body": secrets.token_bytes(8)}
        try:
            self._api.call("s3", "PutObject", **request, **condition)
        except CallFailed as error:
            if error.status in _GONE:
                return False
            raise
        return True

    def _delete_commit(self, commit: ListedObject) -> None:
        try:
            self._api.call("s3", "DeleteObject", Bucket=self._bucket, Key=commit.key, IfMatch=commit.etag)
        except CallFailed as error:
            if error.status not in _GONE:
                raise

    def _is_complete(self, upload: str, tree: "_InputTree") -> bool:
        """Return whether an upload has exactly the files of its manifest, unchanged."""
        manifest = {entry.name: entry for entry in self._read_manifest(f"{MANIFESTS}{upload}")}
        if {name: entry.content for name, entry in manifest.items()} != dict(tree.contents):
            return False
        prefix = files_prefix(upload)
        listed = {
            entry.key.removeprefix(prefix): (entry.size, entry.etag)
            for entry in list_objects(self._api, self._bucket, prefix)
        }
        return listed == {name: (entry.content.size, entry.etag) for name, entry in manifest.items()}

    def _sources(self, tree: "_InputTree", upload: str) -> Mapping[str, ObjectAddress]:
        """Return objects of recent uploads with the same content as files of the tree, by checksum."""
        wanted = {content.checksum for name, content in tree.contents.items() if tree.paths[name] is not None}
        found: dict[str, ObjectAddress] = {}
        listed = list_objects(self._api, self._bucket, MANIFESTS)
        newest_first = sorted(listed, key=lambda entry: entry.modified_at, reverse=True)
        for entry in newest_first[: _MAX_MANIFESTS + 1]:
            other = entry.key.removeprefix(MANIFESTS)
            if other == upload:
                continue
            for file in self._read_manifest(entry.key):
                if file.content.checksum in wanted:
                    source = ObjectAddress(self._bucket, files_prefix(other) + file.name)
                    found.setdefault(file.content.checksum, source)
            if wanted <= found.keys():
                break
        return found

    def _read_manifest(self, key: str) -> Sequence["_ManifestEntry"]:
        """Return the files of an upload; none if the manifest does not exist or is damaged."""
        try:
            text = self._api.call("s3", "GetObject", Bucket=self._bucket, Key=key)["Body"]
        except CallFailed as error:
            if error.status == 404:
                return ()
            raise
        try:
            rows = json.loads(text)["files"]
            return [_ManifestEntry(name, FileDigest(size, checksum), etag) for name, size, checksum, etag in rows]
        except (ValueError, KeyError, TypeError):
            return ()

    def _write_manifest(self, upload: str, tree: "_InputTree", *, etags: Mapping[str, str]) -> None:
        """Write the manifest of an upload.

        It is written before the files, so that garbage collection finds the files of an interrupted upload, and again
        after them with their ETags.
        """
        rows = [[name, each.size, each.checksum, etags.get(name, "")] for name, each in tree.contents.items()]
        body = json.dumps({"files": rows}).encode()
        self._api.call("s3", "PutObject", Bucket=self._bucket, Key=f"{MANIFESTS}{upload}", Body=body)


@dataclass(frozen=True, slots=True)
class _InputTree:
    """The files to upload, by their paths in the folder. An empty folder has no file, and a slash after its path."""

    digest: str
    contents: Mapping[str, FileDigest]
    paths: Mapping[str, Path | None]

    @property
    def size(self) -> int:
        return sum(content.size for content in self.contents.values())


@dataclass(frozen=True, slots=True)
class _ManifestEntry:
    name: str
    content: FileDigest
    etag: str


class _UploadHold:
    """Protects an upload that no job uses yet. It expires an hour after it was last renewed."""

    def __init__(self, api: Api, address: ObjectAddress) -> None:
        self._api, self._address = api, address
        self._lock = threading.Lock()
        self._etag = self._write()

    def renew_if_due(self) -> None:
        with self._lock:
            if time.monotonic() - self._renewed_at > _RENEW_AFTER_S:
                self._renew()

    def renew(self) -> None:
        """Renew the hold. Raises Unavailable if it has expired and been removed."""
        with self._lock:
            self._renew()

    def release(self) -> None:
        self._api.call("s3", "DeleteObject", Bucket=self._address.bucket, Key=self._address.key)

    def _renew(self) -> None:
        try:
            self._etag = self._write(IfMatch=self._etag)
        except CallFailed as error:
            if error.status not in _GONE:
                raise
            hours = HELD_FOR.total_seconds() / 3600
            raise Unavailable(
                f"The upload stalled for more than {hours:g} h and was removed as unused; try again."
            ) from error

    def _write(self, **condition: str) -> str:
        # The content is random, so that garbage collection of an expired hold cannot remove a renewed one.
        request = {"Bucket": self._address.bucket, "Key": self._address.key, "Body": secrets.token_bytes(8)}
        etag: str = self._api.call("s3", "PutObject", **request, **condition)["ETag"]
        self._renewed_at = time.monotonic()
        return etag


def _walk(path: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield every file and every empty folder with its path in the folder; a single file with its name."""
    if not path.exists():
        raise InvalidRequest(f'There is no file or folder "{path}" to upload.')
    if path.is_dir():
        yield from _walk_folder(path, PurePosixPath(), above=())
    else:
        yield _require_utf8(path, path.resolve().name if path.name in ("", "..") else path.name), path


def _walk_folder(folder: Path, inside: PurePosixPath, *, above: tuple[Path, ...]) -> Iterator[tuple[str, Path | None]]:
    real = folder.resolve()
    if real in above:
        raise InvalidRequest(f'"{folder}" is a link to one of its parent folders, so uploading it would never end.')
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise InvalidRequest(f'The folder "{folder}" cannot be read: {error.strerror}.') from error
    if not children and inside.parts:
        yield f"{_require_utf8(folder, str(inside))}/", None
    for child in children:
        if child.is_dir():
            yield from _walk_folder(child, inside / child.name, above=(*above, real))
        elif child.is_file():
            yield _require_utf8(child, str(inside / child.name)), child
        elif child.is_symlink():
            raise InvalidRequest(
                f'"{child}" is a link to "{child.readlink()}", which does not exist; fix or remove the link.'
            )
        else:
            raise InvalidRequest(f'"{child}" is neither a file nor a folder, so it cannot be uploaded; remove it.')


def _require_utf8(path: Path, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"The name of {os.fsencode(path)!r} is not valid UTF-8, which the keys of objects must be; rename it."
        ) from None
    return name


def _content(digests: FileDigests, path: Path | None) -> FileDigest:
    if path is None:
        return _FOLDER_CONTENT
    try:
        return digests.digest(path)
    except OSError as error:
        raise InvalidRequest(f'The file "{path}" cannot be read: {error.strerror}.') from error


def _digest_of(contents: Mapping[str, FileDigest]) -> str:
    rows = sorted((name, content.size, content.checksum) for name, content in contents.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]


def _in_parallel(work: Callable[[str], str], names: Sequence[str]) -> list[str]:
    """Return the results of the work for each name, in order. If one fails, the pending ones are cancelled."""
    executor = ThreadPoolExecutor(_THREADS)
    try:
        return list(executor.map(work, names))
    finally:
        executor.shutdown(cancel_futures=True)
