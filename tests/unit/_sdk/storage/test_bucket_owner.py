from tests.unit.recording import RecordingApi
from trainyard._sdk.connection import Access
from trainyard._sdk.storage.bucket_owner import OwnerCheckedApi, OwnerCheckedClient, api_for_job_buckets

ACCOUNT = "123456789012"


def test_every_call_on_a_bucket_says_that_it_is_the_caller_s_own() -> None:
    api = RecordingApi()
    own = OwnerCheckedApi(api)
    own.call("s3", "PutObject", Bucket="b", Key="k", Body=b"")
    own.call("s3", "HeadBucket", Bucket="b")
    assert api.only("PutObject") == {"Bucket": "b", "Key": "k", "Body": b"", "ExpectedBucketOwner": ACCOUNT}
    assert api.only("HeadBucket")["ExpectedBucketOwner"] == ACCOUNT
    assert [name for name, _ in api.asked].count("GetCallerIdentity") == 1


def test_a_copy_says_so_of_both_buckets() -> None:
    api = RecordingApi()
    OwnerCheckedApi(api).call("s3", "CopyObject", Bucket="b", Key="k", CopySource="c/k")
    asked = api.only("CopyObject")
    assert (asked["ExpectedBucketOwner"], asked["ExpectedSourceBucketOwner"]) == (ACCOUNT, ACCOUNT)


def test_calls_without_a_bucket_or_that_create_one_name_no_owner() -> None:
    api = RecordingApi()
    own = OwnerCheckedApi(api)
    own.call("s3", "ListBuckets")
    own.call("s3", "CreateBucket", Bucket="b")
    own.call("sagemaker", "ListTrainingJobs")
    assert api.asked == [("ListBuckets", {}), ("CreateBucket", {"Bucket": "b"}), ("ListTrainingJobs", {})]


def test_the_buckets_of_a_job_are_those_of_its_account() -> None:
    api = RecordingApi()
    job = {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:444455556666:training-job/theirs"}
    api_for_job_buckets(OwnerCheckedApi(api), job).call("s3", "GetObject", Bucket="b", Key="k")
    assert api.only("GetObject")["ExpectedBucketOwner"] == "444455556666"
    assert len(api.asked) == 1, "nobody need ask who calls"


def test_the_clients_of_the_sdk_and_the_command_line_do_so() -> None:
    client = Access("http://127.0.0.1:1", "AKIA", "secret", "us-east-1").client()
    assert isinstance(client, OwnerCheckedClient)
    client.close()
