"""Reads the code of jobs, to compare its files, and shows the lines in which two versions differ."""

import hashlib
import io
from collections.abc import Iterator, Mapping

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.insight.comparison import MAX_CODE_BYTES, MAX_TEXT_BYTES, CodeFile, JobFacts, diff_code, short_digest
from trainyard.server.dashboard.api import ApiFault, YardApi
from trainyard.server.dashboard.pages.files.archives import archive_kind, tar_files
from trainyard.server.dashboard.pages.files.object_file import find_object, read_as_file, read_range
from trainyard.server.services.contract import Shape

_LIMIT_S = 5.0
_PIECE_BYTES = 1024 * 1024
_MAX_FILES = 2000
# Finding the lines that differ takes time that grows faster than their number.
_MAX_LINES = 4000
_MAX_DIFFERING, _MAX_SHOWN_LINES = 100, 5000


async def read_code(api: YardApi, uri: str | None, *, owner: str) -> Mapping[str, CodeFile]:
    """Return the files of an archive of code, or none if there is none that can be read within the limits."""
    if uri is None:
        return {}
    try:
        place = parse_s3_uri(uri, account=owner)
        found = await find_object(api, place.bucket.name, place.key, owner=owner)
        kind = archive_kind(await read_range(api, found, 0, 512))
        if found.size > MAX_CODE_BYTES or kind not in ("gzip", "tar"):
            return {}

        def read_files(file: io.BufferedReader) -> dict[str, CodeFile]:
            return dict(_files(file, kind))

        return await read_as_file(api, found, read_files, limit_bytes=MAX_CODE_BYTES, limit_s=_LIMIT_S)
    except (ApiFault, InvalidRequest):
        return {}


def differing_files(first: JobFacts, second: JobFacts) -> Shape:
    """Return the files in which the code of two jobs differs, with the lines that do."""
    names = [
        name for name in sorted(first.code.keys() | second.code.keys()) if _digest(first, name) != _digest(second, name)
    ]
    left, files = _MAX_SHOWN_LINES, list[Shape]()
    for name in names[:_MAX_DIFFERING]:
        state = "added" if name not in first.code else "removed" if name not in second.code else "changed"
        lines = list(_lines(first, second, name))
        # The first two name the file.
        files.append({"name": name, "state": state, "lines": lines[2 : left + 2], "isCut": len(lines) - 2 > left})
        left = max(0, left - len(lines))
    return {"files": files, "total": len(names)}


def _files(file: io.BufferedReader, kind: str) -> Iterator[tuple[str, CodeFile]]:
    for number, (name, opened) in enumerate(tar_files(file, kind)):
        if number == _MAX_FILES:
            return
        digest, start = hashlib.sha256(), b""
        while piece := opened.read(_PIECE_BYTES):
            digest.update(piece)
            start += piece[: MAX_TEXT_BYTES + 1 - len(start)]
        yield name, CodeFile(short_digest(digest.hexdigest()), start)


def _digest(job: JobFacts, name: str) -> str:
    return job.code[name].digest if name in job.code else ""


def _lines(first: JobFacts, second: JobFacts, name: str) -> Iterator[str]:
    contents = [job.code[name].content or b"" for job in (first, second) if name in job.code]
    if any(content.count(b"\n") > _MAX_LINES for content in contents):
        yield from ("", "", f"The file has more than {_MAX_LINES:,} lines; they are not compared one by one here.")
        return
    lines = list(diff_code(_only(first, name), _only(second, name)))
    yield from lines if len(lines) > 1 else ("", "", "The file is no text, or too long to be shown.")


def _only(job: JobFacts, name: str) -> JobFacts:
    return JobFacts(job.name, {}, {name: job.code[name]} if name in job.code else {})
