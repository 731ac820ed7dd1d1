import pytest

from tests.unit.server.services.s3.front import NOON, Front
from trainyard.wire.fault import Fault


def names(answer: dict[str, list[dict[str, str]]]) -> list[str]:
    return [bucket["Name"] for bucket in answer["Buckets"]]


def test_a_created_bucket_is_found_and_listed(s3: Front) -> None:
    assert s3("HeadBucket", Bucket="data")["BucketRegion"] == "us-west-2"
    listed = s3("ListBuckets")
    assert listed["Buckets"] == [
        {"Name": "data", "CreationDate": NOON, "BucketRegion": "us-west-2", "BucketArn": "arn:aws:s3:::data"}
    ]
    assert len(listed["Owner"]["ID"]) == 64


def test_creating_a_bucket_answers_its_location(s3: Front) -> None:
    assert s3("CreateBucket", Bucket="models")["Location"] == "/models"


def test_the_location_constraint_decides_the_region(s3: Front) -> None:
    s3("CreateBucket", Bucket="paris", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    s3("CreateBucket", Bucket="dublin", CreateBucketConfiguration={"LocationConstraint": "EU"})
    assert s3("GetBucketLocation", Bucket="paris") == {"LocationConstraint": "eu-west-3"}
    assert s3("HeadBucket", Bucket="dublin")["BucketRegion"] == "eu-west-1"


@pytest.mark.parametrize("constraint", ["../../etc", "eu west", "eu-west-3\n", "ü", "x" * 64])
def test_an_invalid_region_is_refused(s3: Front, constraint: str) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket="nowhere", CreateBucketConfiguration={"LocationConstraint": constraint})
    assert caught.value.code == "InvalidLocationConstraint"
    assert names(s3("ListBuckets")) == ["data"]


def test_a_region_that_aws_has_not_is_one_here(s3: Front) -> None:
    s3.region = "auto"
    s3("CreateBucket", Bucket="anywhere")
    assert s3("GetBucketLocation", Bucket="anywhere") == {"LocationConstraint": "auto"}


def test_the_location_of_a_bucket_in_us_east_1_is_null(s3: Front) -> None:
    s3.region = "us-east-1"
    s3("CreateBucket", Bucket="virginia")
    assert s3("GetBucketLocation", Bucket="virginia")["LocationConstraint"] is None


def test_a_bucket_may_be_created_with_tags(s3: Front) -> None:
    tags = [{"Key": "team", "Value": "vision"}]
    s3("CreateBucket", Bucket="tagged", CreateBucketConfiguration={"Tags": tags})
    assert s3("GetBucketTagging", Bucket="tagged")["TagSet"] == tags


def test_creating_an_own_bucket_again_is_a_conflict(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket="data")
    assert (caught.value.code, caught.value.status) == ("BucketAlreadyOwnedByYou", 409)


def test_creating_an_own_bucket_again_is_fine_in_us_east_1(s3: Front) -> None:
    s3.region = "us-east-1"
    s3("CreateBucket", Bucket="virginia")
    s3.put("virginia", "kept")
    s3("CreateBucket", Bucket="virginia")
    assert s3.keys("virginia") == ["kept"]
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket="data")
    assert (caught.value.code, caught.value.members) == ("BucketAlreadyOwnedByYou", {"BucketName": "data"})


@pytest.mark.parametrize("name", ["abc", "a-b.c", "0bucket9", "x" * 63, "1.2.3", "xn-data"])
def test_names_that_s3_allows_are_allowed(s3: Front, name: str) -> None:
    s3("CreateBucket", Bucket=name)
    assert name in names(s3("ListBuckets"))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ab",
            "x" * 64,
            "Data",
            "a_b",
            "-ab",
            "ab-",
            ".ab",
            "ab.",
            "a..b",
            "a.-b",
            "a-.b",
            "10.0.0.1",
            "..",
            "a/b",
            "dätä",
            "abc\n",
        ),
        *("xn--abc", "sthree-abc", "abc-s3alias", "abc--ol-s3", "abc--x-s3", "abc.mrap"),
    ],
)
def test_names_that_s3_does_not_allow_are_refused(s3: Front, name: str) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket=name)
    assert (caught.value.code, caught.value.status) == ("InvalidBucketName", 400)
    assert names(s3("ListBuckets")) == ["data"]


@pytest.mark.parametrize(
    "options",
    [
        {"ACL": "public-read"},
        {"GrantRead": "uri=http://acs.amazonaws.com/groups/global/AllUsers"},
        {"ObjectLockEnabledForBucket": True},
        {"ObjectOwnership": "ObjectWriter"},
        {"BucketNamespace": "account-regional"},
        {"CreateBucketConfiguration": {"Location": {"Type": "AvailabilityZone", "Name": "usw2-az1"}}},
    ],
)
def test_a_kind_of_bucket_that_is_not_served_is_not_made(s3: Front, options: dict[str, object]) -> None:
    with pytest.raises(Fault) as caught:
        s3("CreateBucket", Bucket="special", **options)
    assert (caught.value.code, caught.value.status) == ("NotImplemented", 501)
    assert names(s3("ListBuckets")) == ["data"]


def test_options_that_state_the_default_are_accepted(s3: Front) -> None:
    s3("CreateBucket", Bucket="plain", ACL="private", ObjectOwnership="BucketOwnerEnforced", BucketNamespace="global")
    assert names(s3("ListBuckets")) == ["data", "plain"]


def test_a_bucket_with_objects_is_not_deleted(s3: Front) -> None:
    s3.put("data", "key")
    with pytest.raises(Fault) as caught:
        s3("DeleteBucket", Bucket="data")
    assert (caught.value.code, caught.value.status) == ("BucketNotEmpty", 409)
    assert caught.value.members == {"BucketName": "data"}
    s3("DeleteObject", Bucket="data", Key="key")
    s3("DeleteBucket", Bucket="data")
    assert names(s3("ListBuckets")) == []


@pytest.mark.parametrize("operation", ["HeadBucket", "GetBucketLocation", "DeleteBucket"])
def test_a_bucket_that_is_not_there_is_not_found(s3: Front, operation: str) -> None:
    with pytest.raises(Fault) as caught:
        s3(operation, Bucket="nothing")
    assert (caught.value.code, caught.value.status) == ("NoSuchBucket", 404)
    assert caught.value.members == {"BucketName": "nothing"}


def test_buckets_are_listed_in_pages(s3: Front) -> None:
    for name in ("a", "a-b", "a.b"):
        s3("CreateBucket", Bucket=f"{name}00")
    first = s3("ListBuckets", MaxBuckets=2)
    second = s3("ListBuckets", MaxBuckets=2, ContinuationToken=first["ContinuationToken"])
    assert names(first) + names(second) == ["a-b00", "a.b00", "a00", "data"]
    assert second["ContinuationToken"] is None


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_page_of_buckets_has_1_to_10000(s3: Front, limit: int) -> None:
    with pytest.raises(Fault) as caught:
        s3("ListBuckets", MaxBuckets=limit)
    assert caught.value.members["ArgumentName"] == "max-buckets"


def test_buckets_are_listed_by_prefix_and_region(s3: Front) -> None:
    s3("CreateBucket", Bucket="paris", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    s3("CreateBucket", Bucket="panama")
    by_prefix = s3("ListBuckets", Prefix="pa")
    assert (names(by_prefix), by_prefix["Prefix"]) == (["panama", "paris"], "pa")
    assert names(s3("ListBuckets", BucketRegion="eu-west-3")) == ["paris"]


def test_a_token_that_no_listing_gave_is_refused(s3: Front) -> None:
    with pytest.raises(Fault) as caught:
        s3("ListBuckets", ContinuationToken="%%%")
    assert caught.value.code == "InvalidArgument"


def test_two_accounts_may_have_buckets_of_one_name(s3: Front, stranger: Front) -> None:
    stranger("CreateBucket", Bucket="data")
    stranger.put("data", "theirs")
    s3.put("data", "ours")
    assert s3.keys("data") == ["ours"]
    assert stranger.keys("data") == ["theirs"]
    assert names(s3("ListBuckets")) == ["data"]


def test_an_administrator_lists_the_buckets_of_all(s3: Front, stranger: Front, administrator: Front) -> None:
    stranger("CreateBucket", Bucket="data")
    stranger("CreateBucket", Bucket="else")
    assert names(administrator("ListBuckets")) == ["data", "data", "else"]
    first = administrator("ListBuckets", MaxBuckets=1)
    rest = administrator("ListBuckets", ContinuationToken=first["ContinuationToken"])
    assert names(rest) == ["data", "else"]
