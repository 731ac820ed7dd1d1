import pytest

from tests.unit.server.services.s3.front import ADMINISTRATOR, OWNER, STRANGER, Front, refused_put
from trainyard.foundation.locations import BucketRef
from trainyard.server.records.contract import User
from trainyard.server.services.contract import Yard
from trainyard.wire.fault import Fault


@pytest.mark.parametrize(
    "key",
    [
        "a/../b",
        "..",
        ".",
        "/",
        "//",
        "a//b",
        " lead",
        "trail ",
        "ümlaut",
        "😀",
        "a\nb\r",
        "\x01\x7f",
        "%41",
        "a+b c",
        "k" * 1024,
    ],
)
def test_almost_any_text_is_a_key(s3: Front, key: str) -> None:
    s3.put("data", key, b"hello")
    assert s3.get("data", key)["Body"] == b"hello"
    assert s3.keys("data") == [key]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("k" * 1025, "KeyTooLongError"),
        ("ü" * 513, "KeyTooLongError"),
        ("a\0b", "InvalidArgument"),
        ("\udcff", "InvalidURI"),
    ],
)
def test_an_invalid_key_is_refused(s3: Front, key: str, code: str) -> None:
    assert refused_put(s3, key=key).code == code


def test_the_owner_may_be_demanded(s3: Front) -> None:
    assert refused_put(s3, ExpectedBucketOwner=STRANGER).code == "AccessDenied"
    s3.put("data", "key", ExpectedBucketOwner=OWNER)
    assert s3.keys("data") == ["key"]


def test_an_administrator_s_own_bucket_comes_first(s3: Front, administrator: Front) -> None:
    s3.put("data", "ours")
    assert administrator.keys("data") == ["ours"]
    administrator("CreateBucket", Bucket="data")
    assert administrator.keys("data") == []


def test_an_administrator_names_the_owner_where_several_have_the_bucket(
    s3: Front, stranger: Front, administrator: Front
) -> None:
    stranger("CreateBucket", Bucket="data")
    stranger.put("data", "theirs")
    with pytest.raises(Fault) as caught:
        administrator.keys("data")
    assert caught.value.status == 409
    assert OWNER in caught.value.message
    assert STRANGER in caught.value.message
    listed = administrator("ListObjectsV2", Bucket="data", ExpectedBucketOwner=STRANGER)
    assert [entry["Key"] for entry in listed["Contents"]] == ["theirs"]
    assert ADMINISTRATOR not in caught.value.message


def test_a_name_with_the_number_of_an_account_is_that_account_s_alone(
    yard: Yard, s3: Front, stranger: Front, administrator: Front
) -> None:
    for account in (OWNER, STRANGER, ADMINISTRATOR):
        yard.records.add_user(User(account, account, "TrainyardRole", is_admin=False, created_at=s3.now))
    for front, account in ((stranger, OWNER), (administrator, OWNER), (s3, ADMINISTRATOR)):
        for name in (f"sagemaker-us-east-1-{account}", f"{account}-backup", f"x{account}7"):
            with pytest.raises(Fault) as caught:
                front("CreateBucket", Bucket=name)
            assert (caught.value.code, caught.value.status) == ("BucketAlreadyExists", 409)
    s3("CreateBucket", Bucket=f"sagemaker-us-east-1-{OWNER}")
    s3("CreateBucket", Bucket="run-202607011200")


def test_nobody_makes_the_usual_bucket_of_an_account_that_is_to_come(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket="sagemaker-eu-west-1-123456789012")
    assert caught.value.code == "BucketAlreadyExists"


def test_an_administrator_does_not_end_up_in_a_bucket_that_another_made_in_their_name(
    yard: Yard, s3: Front, administrator: Front
) -> None:
    name = f"sagemaker-us-east-1-{ADMINISTRATOR}"
    # Created before such names were refused.
    yard.objects.create_bucket(BucketRef(OWNER, name), region="us-east-1", now=s3.now)
    yard.records.add_user(User(ADMINISTRATOR, "admin", "TrainyardRole", is_admin=True, created_at=s3.now))
    for operation, shape in (("HeadBucket", {}), ("PutObject", {"Key": "plans", "Body": b"secret"})):
        with pytest.raises(Fault) as caught:
            administrator(operation, Bucket=name, **shape)
        assert caught.value.code == "NoSuchBucket"
    administrator("CreateBucket", Bucket=name)
    administrator.put(name, "plans", b"secret")
    assert s3.keys(name) == []
    assert administrator("ListObjectsV2", Bucket=name, ExpectedBucketOwner=OWNER)["KeyCount"] == 0


def test_a_bucket_of_another_owner_than_expected_is_refused_put(s3: Front, administrator: Front) -> None:
    assert s3("HeadBucket", Bucket="data", ExpectedBucketOwner=OWNER)["BucketRegion"] == "us-west-2"
    for front in (s3, administrator):
        with pytest.raises(Fault) as caught:
            front("HeadBucket", Bucket="data", ExpectedBucketOwner=STRANGER)
        assert (caught.value.code, caught.value.status) == ("AccessDenied", 403)


def test_a_missing_bucket_is_not_found_whoever_is_expected_to_own_it(s3: Front, administrator: Front) -> None:
    for front in (s3, administrator):
        with pytest.raises(Fault) as caught:
            front("HeadBucket", Bucket="nothing", ExpectedBucketOwner=STRANGER)
        assert caught.value.code == "NoSuchBucket"


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("a b", "/data/a%20b"),
        ("a b", "data/a b"),
        ("ü/+?", "data/%C3%BC/%2B%3F"),
        ("a+b", "data/a+b"),
        ("x", "data/x?versionId=null"),
        ("/x", "data//x"),
        ("a?versionId=1", "data/a%3FversionId%3D1"),
    ],
)
def test_a_source_is_written_in_many_ways(s3: Front, key: str, written: str) -> None:
    s3.put("data", key, b"hello")
    s3("CopyObject", Bucket="data", Key="target", CopySource=written)
    assert s3.get("data", "target")["Body"] == b"hello"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("data", "InvalidArgument"),
        ("data/", "InvalidArgument"),
        ("/", "InvalidArgument"),
        ("", "InvalidArgument"),
        ("arn:aws:s3:us-west-2:1:accesspoint/ap/object/x", "InvalidArgument"),
        ("data/%FF", "InvalidURI"),
        ("data/%00", "InvalidArgument"),
        ("data/source?versionId=abc", "InvalidArgument"),
        ("data/absent", "NoSuchKey"),
        ("nothing/source", "NoSuchBucket"),
    ],
)
def test_an_invalid_copy_source_is_refused(s3: Front, written: str, code: str) -> None:
    s3.put("data", "source", b"hello")
    with pytest.raises(Fault) as caught:
        s3("CopyObject", Bucket="data", Key="target", CopySource=written)
    assert caught.value.code == code
    assert s3.keys("data") == ["source"]
