"""Local files and folders as inputs of jobs: stored by their content, sent once, and used only when they are complete.

`trainyard.foundation.input_trees` says where they lie. Two runs cannot mix their files, because a tree is named by all
that is in it, and a job never sees a tree that is not committed. What was sent before, for this tree or for one that
shares files with it, is copied by the yard.
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

from trainyard.connection import Api
from trainyard.file_digests import FileDigest, FileDigests, encoded
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.input_trees import (
    COMMITS,
    HELD_FOR,
    MANIFESTS,
    files_prefix,
    holds_prefix,
    new_tree,
)
from trainyard.transfers import ListedObject, ObjectAddress, copy_content, entries_below, upload_content
from trainyard.wire.client import CallFailed

_FOLDER_CONTENT = FileDigest(0, encoded(hashlib.sha256(b"").digest()))
_AT_ONCE = 4
_TRIES = 100  # each fails only because another client has succeeded
_RENEWED_AFTER_S = HELD_FOR.total_seconds() / 12
_MOST_MANIFESTS = 16  # of earlier uploads that are looked through for files that are there already
_GONE = (404, 412)  # not there, or not as it was


@dataclass(frozen=True, slots=True)
class UploadedInput:
    """Where a file or folder is, and what had to be sent for it."""

    uri: str
    files: int
    sent_files: int
    sent_bytes: int


class InputUploads:
    """Uploads for jobs that are about to be made.

    What was uploaded cannot be removed as unneeded while it is held: until the end of the block, if it succeeds, by
    when the jobs have been made; otherwise for an hour.
    """

    def __init__(self, api: Api, bucket: str, *, cache: Path) -> None:
        self._api, self._bucket, self._cache = api, bucket, cache
        self._holds: list[_Hold] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            for hold in self._holds:
                hold.release()

    def upload(self, path: Path) -> UploadedInput:
        """Upload a file, or all that is in a folder, unless it is there, and return where it is.

        InvalidRequest for what cannot be uploaded, FileChanged where something writes there meanwhile.
        """
        found = dict(_found_at(path))
        if not found:
            raise InvalidRequest(f'There is nothing in the folder "{path}" to upload.')
        with FileDigests(self._cache) as digests:
            contents = {name: _content(digests, file) for name, file in found.items()}
        tree = _Tree(_digest_of(contents), contents, found)
        committed = self._find_committed(tree)
        return committed or self._store(tree)

    def _find_committed(self, tree: "_Tree") -> UploadedInput | None:
        """A complete upload of the same content, which is held from now on."""
        for _ in range(_TRIES):
            commits = list(entries_below(self._api, self._bucket, f"{COMMITS}{tree.digest}-"))
            for commit in commits:
                upload = commit.key.removeprefix(COMMITS)
                hold = self._hold(upload)
                if not self._is_whole(upload, tree):
                    self._withdraw(commit)
                # Whoever removes an upload deletes its commit as it had read it; after this that fails.
                elif self._write_commit(upload, IfMatch=commit.etag):
                    self._holds.append(hold)
                    return self._uploaded(upload, tree)
                hold.release()
            if not commits:
                return None
        raise Unavailable(f"The commits {COMMITS}{tree.digest}-… in {self._bucket} change all the time; run it again.")

    def _store(self, tree: "_Tree") -> UploadedInput:
        upload = new_tree(tree.digest)
        hold = self._hold(upload)
        self._write_manifest(upload, tree, etags={})
        sources = self._sources(tree, upload)
        sent: list[int] = []

        def store(name: str) -> str:
            hold.renew_in_time()
            place, content = ObjectAddress(self._bucket, files_prefix(upload) + name), tree.contents[name]
            path, source = tree.paths[name], sources.get(content.checksum)
            if path is None:
                answer = self._api.call("s3", "PutObject", Bucket=place.bucket, Key=place.key, Body=b"")
                return str(answer["ETag"])
            etag = copy_content(self._api, source, content, place=place) if source else None
            if etag is None:
                etag = upload_content(self._api, path, content, place=place, pulse=hold.renew_in_time)
                sent.append(content.size)  # safe between threads
            return etag

        etags = dict(zip(tree.paths, _in_parallel(store, list(tree.paths)), strict=True))
        self._write_manifest(upload, tree, etags=etags)
        hold.renew()
        self._write_commit(upload)
        self._holds.append(hold)
        return self._uploaded(upload, tree, sent=sent)

    def _uploaded(self, upload: str, tree: "_Tree", *, sent: Sequence[int] = ()) -> UploadedInput:
        uri = f"s3://{self._bucket}/{files_prefix(upload)}"
        return UploadedInput(uri, len(tree.contents), len(sent), sum(sent))

    def _hold(self, upload: str) -> "_Hold":
        return _Hold(self._api, ObjectAddress(self._bucket, f"{holds_prefix(upload)}{secrets.token_hex(8)}"))

    def _write_commit(self, upload: str, **condition: str) -> bool:
        """Whether the commit could be written: not when it is no longer as it was read."""
        # Another content each time, so that its ETag tells one use from another.
        asked = {"Bucket": self._bucket, "Key": f"{COMMITS}{upload}", "Body": secrets.token_bytes(8)}
        try:
            self._api.call("s3", "PutObject", **asked, **condition)
        except CallFailed as error:
            if error.status in _GONE:
                return False
            raise
        return True

    def _withdraw(self, commit: ListedObject) -> None:
        try:
            self._api.call("s3", "DeleteObject", Bucket=self._bucket, Key=commit.key, IfMatch=commit.etag)
        except CallFailed as error:
            if error.status not in _GONE:
                raise

    def _is_whole(self, upload: str, tree: "_Tree") -> bool:
        """Whether every file of an upload is there as it was stored, and nothing else."""
        stored = self._read_manifest(f"{MANIFESTS}{upload}")
        told = {entry.name: entry for entry in stored}
        if {name: entry.content for name, entry in told.items()} != dict(tree.contents):
            return False
        prefix = files_prefix(upload)
        listed = {
            entry.key.removeprefix(prefix): (entry.size, entry.etag)
            for entry in entries_below(self._api, self._bucket, prefix)
        }
        return listed == {name: (entry.content.size, entry.etag) for name, entry in told.items()}

    def _sources(self, tree: "_Tree", upload: str) -> Mapping[str, ObjectAddress]:
        """Where contents of the tree are already, by their checksums, as far as recent uploads tell."""
        wanted = {content.checksum for name, content in tree.contents.items() if tree.paths[name] is not None}
        found: dict[str, ObjectAddress] = {}
        listed = entries_below(self._api, self._bucket, MANIFESTS)
        newest_first = sorted(listed, key=lambda entry: entry.modified_at, reverse=True)
        for entry in newest_first[: _MOST_MANIFESTS + 1]:
            other = entry.key.removeprefix(MANIFESTS)
            if other == upload:
                continue
            for file in self._read_manifest(entry.key):
                if file.content.checksum in wanted:
                    place = ObjectAddress(self._bucket, files_prefix(other) + file.name)
                    found.setdefault(file.content.checksum, place)
            if wanted <= found.keys():
                break
        return found

    def _read_manifest(self, key: str) -> Sequence["_StoredFile"]:
        """The files of an upload; none where the manifest is gone or is no manifest."""
        try:
            text = self._api.call("s3", "GetObject", Bucket=self._bucket, Key=key)["Body"]
        except CallFailed as error:
            if error.status == 404:
                return ()
            raise
        try:
            rows = json.loads(text)["files"]
            return [_StoredFile(name, FileDigest(size, checksum), etag) for name, size, checksum, etag in rows]
        except (ValueError, KeyError, TypeError):
            return ()

    def _write_manifest(self, upload: str, tree: "_Tree", *, etags: Mapping[str, str]) -> None:
        """Before the files, so that those of an interrupted upload are found; and after them, with their ETags."""
        rows = [[name, each.size, each.checksum, etags.get(name, "")] for name, each in tree.contents.items()]
        body = json.dumps({"files": rows}).encode()
        self._api.call("s3", "PutObject", Bucket=self._bucket, Key=f"{MANIFESTS}{upload}", Body=body)


@dataclass(frozen=True, slots=True)
class _Tree:
    """What is to be uploaded, by its path in the folder; a folder that is empty has no file, and a slash at its end."""

    digest: str
    contents: Mapping[str, FileDigest]
    paths: Mapping[str, Path | None]


@dataclass(frozen=True, slots=True)
class _StoredFile:
    name: str
    content: FileDigest
    etag: str


class _Hold:
    """Says that an upload is needed although no job names it yet; an hour after the last time, it says so no more."""

    def __init__(self, api: Api, place: ObjectAddress) -> None:
        self._api, self._place = api, place
        self._lock = threading.Lock()
        self._etag = self._written()

    def renew_in_time(self) -> None:
        with self._lock:
            if time.monotonic() - self._renewed_at > _RENEWED_AFTER_S:
                self._renew()

    def renew(self) -> None:
        """Unavailable where the hold was not renewed for so long that it has been removed."""
        with self._lock:
            self._renew()

    def release(self) -> None:
        self._api.call("s3", "DeleteObject", Bucket=self._place.bucket, Key=self._place.key)

    def _renew(self) -> None:
        try:
            self._etag = self._written(IfMatch=self._etag)
        except CallFailed as error:
            if error.status not in _GONE:
                raise
            hours = HELD_FOR.total_seconds() / 3600
            raise Unavailable(
                f"The upload stood still for more than {hours:g} h and was removed as unneeded; run it again."
            ) from error

    def _written(self, **condition: str) -> str:
        # Another content each time, so that whoever removes an old hold does not remove a new one.
        asked = {"Bucket": self._place.bucket, "Key": self._place.key, "Body": secrets.token_bytes(8)}
        etag: str = self._api.call("s3", "PutObject", **asked, **condition)["ETag"]
        self._renewed_at = time.monotonic()
        return etag


def _found_at(path: Path) -> Iterator[tuple[str, Path | None]]:
    """Every file, and every folder without any, by its path in the folder; a file alone by its name."""
    if not path.exists():
        raise InvalidRequest(f'There is no file or folder "{path}" to upload.')
    if path.is_dir():
        yield from _found_in(path, PurePosixPath(), above=())
    else:
        yield _named(path, path.resolve().name if path.name in ("", "..") else path.name), path


def _found_in(folder: Path, inside: PurePosixPath, *, above: tuple[Path, ...]) -> Iterator[tuple[str, Path | None]]:
    real = folder.resolve()
    if real in above:
        raise InvalidRequest(f'"{folder}" links to a folder it lies in, and so would be uploaded without end.')
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise InvalidRequest(f'The folder "{folder}" cannot be read: {error.strerror}.') from error
    if not children and inside.parts:
        yield f"{_named(folder, str(inside))}/", None
    for child in children:
        if child.is_dir():
            yield from _found_in(child, inside / child.name, above=(*above, real))
        elif child.is_file():
            yield _named(child, str(inside / child.name)), child
        elif child.is_symlink():
            raise InvalidRequest(
                f'"{child}" links to "{child.readlink()}", which is not there; mend or remove the link.'
            )
        else:
            raise InvalidRequest(f'"{child}" is neither a file nor a folder, so it cannot be uploaded; remove it.')


def _named(path: Path, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"The name of {os.fsencode(path)!r} is not text in UTF-8, as the keys of objects are; rename it."
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
    """What the work gives for each name, in order. When one fails, those that have not begun are left out."""
    executor = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(executor.map(work, names))
    finally:
        executor.shutdown(cancel_futures=True)
