"""The parts of an upload, received or copied."""

from collections.abc import Sequence
from datetime import datetime

from trainyard.objects.contract import ChecksumAlgorithm, ChecksumType, ObjectReader, ObjectWriter, Upload, Written
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of, source_of
from trainyard.server.services.s3.attributes import encryption_members
from trainyard.server.services.s3.checksums import Announced, announced, digest_member
from trainyard.server.services.s3.conditions import check_source
from trainyard.server.services.s3.faults import invalid_request, too_large
from trainyard.server.services.s3.intake import MAX_BODY_BYTES, body_size, receive, require_room
from trainyard.server.services.s3.ranges import Span, checked_part_number, copy_span

BITE_BYTES = 1024 * 1024


async def upload_part(call: Call, shape: Shape) -> Shape:
    part = _Part(call, shape, checked_part_number(shape["PartNumber"]), announced(call, shape))
    return await receive(shape["Body"], body_size(shape), begin=part.begin, finish=part.finish)


def upload_part_copy(call: Call, shape: Shape) -> Shape:
    number, objects = checked_part_number(shape["PartNumber"]), call.yard.objects
    source, where = source_of(call, shape), location_of(call, shape)
    upload = objects.upload(where, shape["UploadId"])
    with objects.open(source) as reader:
        check_source(shape, reader.info, now=call.now)
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
        _check_algorithm(self._upload, self._digests.algorithm)
        require_room(objects, where, body_size(self._shape))
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


def _check_algorithm(upload: Upload, announced: ChecksumAlgorithm | None) -> None:
    """Refuse a part that comes with another checksum than its upload was begun with.

    One without any is refused where the checksum of the whole is made of those that the client knows.
    """
    if upload.algorithm in (None, announced):
        return
    if announced is not None or upload.checksum_type is ChecksumType.COMPOSITE:
        raise invalid_request(
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm.lower()}, "
            f"actual checksum Type: {announced.lower() if announced else 'null'}"
        )


def _algorithms(upload: Upload, announced: ChecksumAlgorithm | None = None) -> Sequence[ChecksumAlgorithm]:
    """Which checksums to compute of a part: that of its upload, or the one it came with when the upload has none."""
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
