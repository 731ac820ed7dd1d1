"""One multipart upload, driven step by step."""

from hashlib import md5
from typing import Any

import pytest

from tests.unit.server.services.s3.front import Front
from trainyard.objects.checksums import digest_of
from trainyard.objects.contract import ChecksumAlgorithm
from trainyard.wire.fault import Fault

PART = bytes(range(256)) * (5 * 1024**2 // 256)
TAIL = b"the end"


class Upload:
    """A multipart upload of "data/big"."""

    def __init__(self, s3: Front, **options: Any) -> None:
        self.s3 = s3
        self.created = s3("CreateMultipartUpload", Bucket="data", Key="big", **options)
        self.named: list[dict[str, Any]] = []

    def __call__(self, operation: str, **shape: Any) -> dict[str, Any]:
        return self.s3(operation, Bucket="data", Key="big", UploadId=self.created["UploadId"], **shape)

    def put(self, number: int, body: bytes, **shape: Any) -> dict[str, Any]:
        put = self("UploadPart", PartNumber=number, Body=body, **shape)
        told = {name: value for name, value in put.items() if name == "ETag" or name.startswith("Checksum")}
        self.named.append({"PartNumber": number, **told})
        return put

    def put_summed(self, number: int, body: bytes) -> dict[str, Any]:
        """Upload a part with the checksum algorithm of the upload."""
        algorithm = ChecksumAlgorithm(self.created["ChecksumAlgorithm"])
        return self.put(number, body, **{f"Checksum{algorithm}": digest_of(algorithm, [body])})

    def complete(self, **shape: Any) -> dict[str, Any]:
        return self("CompleteMultipartUpload", **({"MultipartUpload": {"Parts": self.named}} | shape))

    def refusal(self, operation: str, **shape: Any) -> Fault:
        with pytest.raises(Fault) as caught:
            self(operation, **shape)
        assert self.s3.keys("data") == []
        return caught.value

    def refused_completion(self, **shape: Any) -> Fault:
        return self.refusal("CompleteMultipartUpload", **({"MultipartUpload": {"Parts": self.named}} | shape))


def multipart_etag(*parts: bytes) -> str:
    return f'"{md5(b"".join(md5(part).digest() for part in parts)).hexdigest()}-{len(parts)}"'
