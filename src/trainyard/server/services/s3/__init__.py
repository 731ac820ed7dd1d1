"""S3: buckets and objects over the yard's object store."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.s3 import (
    buckets,
    completion,
    configurations,
    copying,
    deleting,
    listing,
    ownership,
    parts,
    reading,
    tagging,
    uploads,
    writing,
)
from trainyard.server.services.s3.faults import FAULTS

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **buckets.OPERATIONS,
    **configurations.OPERATIONS,
    **ownership.OPERATIONS,
    **listing.OPERATIONS,
    **writing.OPERATIONS,
    **reading.OPERATIONS,
    **copying.OPERATIONS,
    **deleting.OPERATIONS,
    **tagging.OPERATIONS,
    **uploads.OPERATIONS,
    **parts.OPERATIONS,
    **completion.OPERATIONS,
}
