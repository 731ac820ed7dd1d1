"""What S3 offers on a request and the yard has not.

Each of these changes who may read an object, how it is kept, or when it may go, so passing over one in silence would
make a client believe something untrue. They are refused by name.
"""

from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import not_served

_CUSTOMER_KEYS = "encryption with a key of the customer (SSE-C)"
GRANTS = "access control lists; an object belongs to its account alone"
_LOCKS = "object locks, retention and legal holds"
_DIRECTORY_BUCKETS = "the conditions and appends of directory buckets"
_CHECKSUMS = "this checksum algorithm; use CRC32, CRC32C, CRC64NVME, SHA1 or SHA256"

_UNSERVED = {
    "SSECustomerAlgorithm": _CUSTOMER_KEYS,
    "SSECustomerKey": _CUSTOMER_KEYS,
    "SSECustomerKeyMD5": _CUSTOMER_KEYS,
    "CopySourceSSECustomerAlgorithm": _CUSTOMER_KEYS,
    "CopySourceSSECustomerKey": _CUSTOMER_KEYS,
    "CopySourceSSECustomerKeyMD5": _CUSTOMER_KEYS,
    "GrantFullControl": GRANTS,
    "GrantRead": GRANTS,
    "GrantReadACP": GRANTS,
    "GrantWrite": GRANTS,
    "GrantWriteACP": GRANTS,
    "ObjectLockMode": _LOCKS,
    "ObjectLockRetainUntilDate": _LOCKS,
    "ObjectLockLegalHoldStatus": _LOCKS,
    "ObjectLockEventHold": _LOCKS,
    "ObjectLockEventHoldDurationDays": _LOCKS,
    "ObjectLockEventHoldDurationYears": _LOCKS,
    "WriteOffsetBytes": _DIRECTORY_BUCKETS,
    "IfMatchLastModifiedTime": _DIRECTORY_BUCKETS,
    "IfMatchSize": _DIRECTORY_BUCKETS,
    "IfMatchInitiatedTime": _DIRECTORY_BUCKETS,
    "ChecksumSHA512": _CHECKSUMS,
    "ChecksumMD5": _CHECKSUMS,
    "ChecksumXXHASH64": _CHECKSUMS,
    "ChecksumXXHASH3": _CHECKSUMS,
    "ChecksumXXHASH128": _CHECKSUMS,
}

# Both say what is so anyway: the owner, and nobody else, has full control.
_TRUE_ACLS = frozenset({"private", "bucket-owner-full-control"})


def refuse_unserved(shape: Shape) -> None:
    """Raise NotImplemented for the first option in the request that the yard cannot honour."""
    for member in _UNSERVED.keys() & shape.keys():
        raise not_served(f"{_UNSERVED[member]} ({member})")
    acl = shape.get("ACL")
    if acl is not None and acl not in _TRUE_ACLS:
        raise not_served(f'{GRANTS}, so that "{acl}" would promise what is not so')
