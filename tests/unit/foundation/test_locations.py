import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import BucketRef, Location, parse_s3_uri


def test_a_uri_names_bucket_and_key_of_the_account() -> None:
    assert parse_s3_uri("s3://data/train/a b.csv", "123456789012") == Location(
        BucketRef("123456789012", "data"), "train/a b.csv"
    )


def test_a_bucket_alone_has_an_empty_key() -> None:
    assert parse_s3_uri("s3://data", "1").key == ""


def test_a_location_prints_as_its_uri() -> None:
    assert str(parse_s3_uri("s3://data/a//b", "1")) == "s3://data/a//b"


@pytest.mark.parametrize("uri", ["data/train", "http://data/train", "s3:///train", ""])
def test_anything_else_is_refused_with_the_value(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an S3 location"):
        parse_s3_uri(uri, "1")
