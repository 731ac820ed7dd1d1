"""Uploads many files at once: small ones in one write if the store supports that, in parallel if it is remote.

Files are stored in the order of their last modification, because a program writes references to files after the files.
Within a group there is no order. In one write all files appear at the same moment. In parallel only files are uploaded
that are unlikely to refer to others; the last file of a folder and one that replaces an object may do so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import TrainyardError
from trainyard.instance.agent.data.sync.changes import UploadCandidate
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.instance.agent.data.sync.upload import FileUploader, SmallFile
from trainyard.objects.contract import ObjectAccess, PreconditionFailed, WritesBatches

# The size limit of a file that is written together with others.
SMALL_BYTES = 256 * 1024
# The files of a group are held in memory, and open in the store.
GROUP_BYTES = 16 * 1024 * 1024
GROUP_FILES = 128
PARALLEL_UPLOADS = 16


@dataclass(frozen=True, slots=True)
class UploadResult:
    """The outcome for a file: the stamp of what was stored, None if it must wait, or an error."""

    path: str
    outcome: FileStamp | TrainyardError | OSError | None


def upload_all(
    uploader: FileUploader, store: ObjectAccess, candidates: Sequence[UploadCandidate]
) -> Iterator[Sequence[UploadResult]]:
    """Upload files group by group, and yield the results of each group once durable. The caller may stop early."""
    if isinstance(store, WritesBatches):
        return _upload_together(uploader, store, candidates)
    return _upload_in_parallel(uploader, store, candidates)


def _upload_together(
    uploader: FileUploader, store: ObjectAccess, candidates: Sequence[UploadCandidate]
) -> Iterator[Sequence[UploadResult]]:
    group: list[SmallFile] = []
    size = 0
    for candidate in candidates:
        small = _read_small_file(uploader, candidate)
        if small is not None:
            group.append(small)
            size += small.stamp.size
        if group and (small is None or size >= GROUP_BYTES or len(group) >= GROUP_FILES):
            yield _upload_group(uploader, store, group)
            group, size = [], 0
        if small is None:
            yield [_upload_one(uploader, store, candidate)]
    if group:
        yield _upload_group(uploader, store, group)


def _read_small_file(uploader: FileUploader, candidate: UploadCandidate) -> SmallFile | None:
    try:
        return uploader.read_small(candidate, SMALL_BYTES)
    except OSError:
        # Uploading it alone reports the error.
        return None


def _upload_group(uploader: FileUploader, store: ObjectAccess, group: Sequence[SmallFile]) -> list[UploadResult]:
    assert isinstance(store, WritesBatches), "the caller has checked"
    try:
        outcomes = uploader.upload_together(store, group)
    except (TrainyardError, OSError) as error:
        return [UploadResult(each.candidate.path, error) for each in group]
    return [
        # Uploading it alone finds out who wrote the other object, and replaces it.
        _upload_one(uploader, store, each.candidate)
        if isinstance(outcome, PreconditionFailed)
        else UploadResult(each.candidate.path, outcome)
        for each, outcome in zip(group, outcomes, strict=True)
    ]


def _upload_in_parallel(
    uploader: FileUploader, store: ObjectAccess, candidates: Sequence[UploadCandidate]
) -> Iterator[Sequence[UploadResult]]:
    # Imported here, because an agent with a local store does not need it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(PARALLEL_UPLOADS) as threads:
        for group in _groups(uploader, candidates):
            yield list(threads.map(lambda candidate: _upload_one(uploader, store, candidate), group))


def _groups(uploader: FileUploader, candidates: Sequence[UploadCandidate]) -> Iterator[Sequence[UploadCandidate]]:
    last_of_folders = {candidate.path.rpartition("/")[0]: candidate for candidate in candidates}.values()
    alone = {candidate.path for candidate in last_of_folders}
    group: list[UploadCandidate] = []
    for candidate in candidates:
        is_alone = candidate.path in alone or uploader.has_stored(candidate.path)
        if group and (is_alone or len(group) == PARALLEL_UPLOADS):
            yield group
            group = []
        if is_alone:
            yield [candidate]
        else:
            group.append(candidate)
    if group:
        yield group


def _upload_one(uploader: FileUploader, store: ObjectAccess, candidate: UploadCandidate) -> UploadResult:
    try:
        return UploadResult(candidate.path, uploader.upload(store, candidate))
    except (TrainyardError, OSError) as error:
        return UploadResult(candidate.path, error)
