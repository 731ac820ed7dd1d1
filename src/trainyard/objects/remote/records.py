"""Objects, buckets and uploads as JSON records in the remote bucket."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import (
    Attributes,
    Bucket,
    Checksum,
    ChecksumAlgorithm,
    ChecksumType,
    ObjectPart,
    Upload,
)
from trainyard.objects.rows import (
    attributes_text,
    checksum_text,
    parts_text,
    read_attributes,
    read_checksum,
    read_parts,
)


@dataclass(frozen=True, slots=True)
class Description:
    """What the remote does not store about an object."""

    key: str
    attributes: Attributes
    checksum: Checksum | None = None
    parts: Sequence[ObjectPart] = ()

    def json(self) -> str:
        """Return JSON in ASCII, so that it fits in a header."""
        return json.dumps(
            [self.key, attributes_text(self.attributes), checksum_text(self.checksum), parts_text(self.parts)]
        )


def read_description(text: str) -> Description:
    key, attributes, checksum, parts = json.loads(text)
    return Description(key, read_attributes(attributes), read_checksum(checksum), read_parts(parts))


def bucket_json(bucket: Bucket) -> bytes:
    return json.dumps([bucket.region, to_micros(bucket.created_at), dict(bucket.tags)]).encode()


def read_bucket_json(ref: BucketRef, text: bytes) -> Bucket:
    region, created_at, tags = json.loads(text)
    return Bucket(ref, region, from_micros(created_at), tags)


def upload_json(upload: Upload) -> bytes:
    described = (attributes_text(upload.attributes), upload.algorithm, upload.checksum_type)
    return json.dumps([upload.where.key, to_micros(upload.started_at), *described]).encode()


def read_upload_json(ref: BucketRef, upload_id: str, text: bytes) -> Upload:
    key, started_at, attributes, algorithm, kind = json.loads(text)
    return Upload(
        upload_id,
        Location(ref, key),
        from_micros(started_at),
        read_attributes(attributes),
        ChecksumAlgorithm(algorithm) if algorithm else None,
        ChecksumType(kind) if kind else None,
    )
