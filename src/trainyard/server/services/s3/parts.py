"""The parts of an upload, received or copied."""

from collections.abc import Sequence
from datetime import datetime

from trainyard.objects.contract import ChecksumAlgorithm, ObjectReader, ObjectWriter, Upload, Written
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of, source_of
from trainyard.server.services.s3.attributes import encryption_members
from trainyard.server.services.s3.checksums import Announced, announced, digest_member
from trainyard.server.services.s3.conditions import check_source
from trainyard.server.services.s3.faults import invalid_argument, invalid_request, too_large
from trainyard.server.services.s3.intake import MAX_BODY_BYTES, body_size, receive
from trainyard.server.services.s3.ranges import Span, copy_span

MAX_PART_NUMBER = 10_000
BITE_BYTES = 1024 * 1024


async def upload_part(call: Call, shape: Shape) -> Shape:
    part = _Part(call, shape, _part_number(shape), announced(call, shape))
    return await receive(shape["Body"], body_size(shape), begin=part.begin, finish=part.finish)


def upload_part_copy(call: Call, shape: Shape) -> Shape:
    number, objects = _part_number(shape), call.yard.objects
    source, where = source_of(call, shape), location_of(call, shape)
    upload = objects.upload(where, shape["UploadId"])
    with objects.open(source) as reader:
        check_source(shape, reader.info)
        span = copy_span(shape.get("CopySourceRange"), reader.info)
        if span.size > MAX_BODY_BYTES:
            raise too_large(span.size, MAX_BODY_BYTES)
        writer = objects.part_writer(where, upload.id, number, algorithms=_algorithms(upload))
        written = _copy_span(reader, writer, span=span, now=call.now)
    result = {"ETag": f'"{written.etag}"', "LastModified": written.modified_at, **digest_member(written.checksum)}
    return {"CopyPartResult": result, **encryption_members(upload.attributes)}


OPERATIONS: Operations = {"UploadPart": upload_part, "UploadPartCopy": upload_part_copy}


class _Part:
    """One part being received; `begin` and `finish` run in a worker thread."""

    def __init__(self, call: Call, shape: Shape, number: int, digests: Announced) -> None:
        self._call, self._shape, self._number, self._digests = call, shape, number, digests

    def begin(self) -> ObjectWriter:
        objects, where = self._call.yard.objects, location_of(self._call, self._shape)
        self._upload = objects.upload(where, self._shape["UploadId"])
        algorithms = _algorithms(self._upload, self._digests.algorithm)
        return objects.part_writer(where, self._upload.id, self._number, algorithms=algorithms)

    def finish(self, writer: ObjectWriter) -> Shape:
        expected = self._digests.expected(self._shape["Body"])
        written = writer.commit(now=self._call.now, expected=expected, md5=self._digests.md5)
        return {
            "ETag": f'"{written.etag}"',
            **digest_member(written.checksum),
            **encryption_members(self._upload.attributes),
        }


def _part_number(shape: Shape) -> int:
    number = int(shape["PartNumber"])
    if not 1 <= number <= MAX_PART_NUMBER:
        raise invalid_argument(
            f"The number of a part is between 1 and {MAX_PART_NUMBER}.", name="partNumber", value=number
        )
    return number


def _algorithms(upload: Upload, announced: ChecksumAlgorithm | None = None) -> Sequence[ChecksumAlgorithm]:
    """Which checksums to compute of a part: that of its upload, or the one it came with when the upload has none."""
    if announced is not None and upload.algorithm not in (None, announced):
        raise invalid_request(
            f"The upload was begun with {upload.algorithm} checksums; this part comes with {announced}."
        )
    algorithm = upload.algorithm or announced
    return () if algorithm is None else (algorithm,)


def _copy_span(reader: ObjectReader, writer: ObjectWriter, *, span: Span, now: datetime) -> Written:
    try:
        for offset in range(span.offset, span.offset + span.size, BITE_BYTES):
            writer.write(reader.read(offset, min(BITE_BYTES, span.offset + span.size - offset)))
        return writer.commit(now=now)
    except BaseException:
        writer.abort()
        raise
