import pytest

from tests.unit.server.services.s3.front import Front, refused_put
from trainyard.wire.fault import Fault

TAGS = [{"Key": "team", "Value": "vision"}, {"Key": "empty", "Value": ""}]


def test_the_tags_of_a_bucket_are_replaced_and_removed(s3: Front) -> None:
    s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": [{"Key": "old", "Value": "1"}]})
    s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": TAGS})
    assert s3("GetBucketTagging", Bucket="data") == {"TagSet": TAGS}
    s3("DeleteBucketTagging", Bucket="data")
    with pytest.raises(Fault) as caught:
        s3("GetBucketTagging", Bucket="data")
    assert (caught.value.code, caught.value.status) == ("NoSuchTagSet", 404)


def test_the_tags_of_an_object_are_replaced_and_removed(s3: Front) -> None:
    s3.put("data", "key", b"hello", Tagging="old=1")
    s3("PutObjectTagging", Bucket="data", Key="key", Tagging={"TagSet": TAGS})
    assert s3("GetObjectTagging", Bucket="data", Key="key") == {"TagSet": TAGS}
    s3("DeleteObjectTagging", Bucket="data", Key="key")
    assert s3("GetObjectTagging", Bucket="data", Key="key") == {"TagSet": []}
    assert s3.get("data", "key")["Body"] == b"hello"


@pytest.mark.parametrize("operation", ["GetObjectTagging", "PutObjectTagging", "DeleteObjectTagging"])
def test_a_missing_object_has_no_tags(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="data", Key="nothing", Tagging={"TagSet": TAGS})
    assert caught.value.code == "NoSuchKey"


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}], "InvalidTag"),
        ([{"Key": "k" * 129, "Value": ""}], "InvalidTag"),
        ([{"Key": "", "Value": ""}], "InvalidTag"),
        ([{"Key": "a", "Value": "v" * 257}], "InvalidTag"),
        ([{"Key": "aws:mine", "Value": ""}], "InvalidTag"),
        ([{"Key": "why?", "Value": ""}], "InvalidTag"),
        ([{"Key": "a", "Value": "100 %"}], "InvalidTag"),
        ([{"Key": str(number), "Value": ""} for number in range(51)], "BadRequest"),
    ],
)
def test_wrong_tags_change_nothing(s3: Front, tags: list[dict[str, str]], code: str) -> None:
    s3.put("data", "key", Tagging="kept=1")
    s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": TAGS})
    for operation, where in (("PutObjectTagging", {"Key": "key"}), ("PutBucketTagging", {})):
        with pytest.raises(Fault) as caught:
            s3(operation, Bucket="data", Tagging={"TagSet": tags}, **where)
        assert caught.value.code == code
    assert s3("GetObjectTagging", Bucket="data", Key="key")["TagSet"] == [{"Key": "kept", "Value": "1"}]
    assert s3("GetBucketTagging", Bucket="data")["TagSet"] == TAGS


def test_a_bucket_may_have_fifty_tags_and_an_object_ten(s3: Front) -> None:
    s3.put("data", "key")
    tags = [{"Key": f"{number:02}", "Value": ""} for number in range(50)]
    s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": tags})
    assert len(s3("GetBucketTagging", Bucket="data")["TagSet"]) == 50
    with pytest.raises(Fault) as caught:
        s3("PutObjectTagging", Bucket="data", Key="key", Tagging={"TagSet": tags[:11]})
    assert caught.value.code == "BadRequest"


def test_the_digest_of_tags_is_verified(s3: Front) -> None:
    s3.document = b"<Tagging/>"
    with pytest.raises(Fault) as caught:
        s3("PutBucketTagging", Bucket="data", Tagging={"TagSet": TAGS}, headers={"x-amz-checksum-crc32": "AAAAAA=="})
    assert caught.value.code == "BadDigest"


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a", {"a": ""}),
        ("a&b=&", {"a": "", "b": ""}),
        ("&&", {}),
        ("a%20b+c=%C3%A9%2B@", {"a b c": "é+@"}),
    ],
)
def test_a_tagging_header_is_read_like_a_query(s3: Front, header: str, tags: dict[str, str]) -> None:
    s3.put("data", "key", Tagging=header)
    told = s3("GetObjectTagging", Bucket="data", Key="key")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in told} == tags


@pytest.mark.parametrize("header", ["a%", "a=1&a=2", "=1", f"{'k' * 129}=1", f"k={'v' * 257}", "%ff=1", "aws:x=1"])
def test_a_tagging_header_that_is_wrong_is_refused_put(s3: Front, header: str) -> None:
    assert refused_put(s3, Tagging=header).code in ("InvalidTag", "InvalidArgument")


def test_an_object_has_at_most_ten_tags(s3: Front) -> None:
    assert refused_put(s3, Tagging="&".join(f"k{number}=v" for number in range(11))).code == "BadRequest"
