"""Objects taken in whole: PutObject."""

from trainyard.objects.contract import ChecksumAlgorithm, ObjectWriter, PreconditionFailed, Written
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.s3.addressing import location_of
from trainyard.server.services.s3.attributes import attributes_of, encryption_members
from trainyard.server.services.s3.checksums import announced, checksum_members
from trainyard.server.services.s3.conditions import failed_write, precondition_of
from trainyard.server.services.s3.intake import body_size, receive, require_room

# What S3 counts of an object that comes without a checksum. It passes 17 GiB/s, MD5 0.6 (measured 2026).
DEFAULT_ALGORITHM = ChecksumAlgorithm.CRC64NVME


async def put_object(call: Call, shape: Shape) -> Shape:
    objects, body = call.yard.objects, shape["Body"]
    digests, attributes, precondition = announced(call, shape), attributes_of(shape), precondition_of(shape)
    algorithms, size = (digests.algorithm or DEFAULT_ALGORITHM,), body_size(shape)

    def begin() -> ObjectWriter:
        where = location_of(call, shape)
        require_room(objects, where, size)
        return objects.writer(where, attributes, algorithms=algorithms)

    def finish(writer: ObjectWriter) -> Written:
        expected = digests.expected(body)
        try:
            return writer.commit(now=call.now, expected=expected, md5=digests.md5, precondition=precondition)
        except PreconditionFailed as error:
            raise failed_write(objects, location_of(call, shape), precondition=precondition) from error

    written = await receive(body, size, begin=begin, finish=finish)
    return {
        "ETag": f'"{written.etag}"',
        **checksum_members(written.checksum),
        **encryption_members(attributes),
    }


OPERATIONS: Operations = {"PutObject": put_object}
