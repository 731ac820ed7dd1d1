"""S3: buckets and objects over the yard's object store."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.s3 import (
    bucket_encryption,
    buckets,
    configurations,
    listing,
    multipart_completion,
    multipart_uploads,
    object_reads,
    object_writes,
    ownership,
    tagging,
)
from trainyard.server.services.s3.faults import FAULTS

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **buckets.OPERATIONS,
    **bucket_encryption.OPERATIONS,
    **configurations.OPERATIONS,
    **ownership.OPERATIONS,
    **listing.OPERATIONS,
    **object_writes.OPERATIONS,
    **object_reads.OPERATIONS,
    **tagging.OPERATIONS,
    **multipart_uploads.OPERATIONS,
    **multipart_completion.OPERATIONS,
}
