"""The location of an object: a bucket of one account, and a key in it."""

from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest


@dataclass(frozen=True, slots=True, order=True)
class BucketRef:
    """A bucket of one account. Two accounts may each have a bucket of the same name."""

    account: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Location:
    bucket: BucketRef
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket.name}/{self.key}"


def parse_s3_uri(uri: str, account: str) -> Location:
    """Parse `s3://bucket/key`; the key may be empty."""
    scheme, separator, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not separator or not bucket:
        raise InvalidRequest(f'"{uri}" is not an S3 location; write it as s3://bucket/prefix.')
    return Location(BucketRef(account, bucket), key)
