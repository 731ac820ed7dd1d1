from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.foundation.errors import InvalidRequest
from trainyard.session import Session, get_execution_role
from trainyard.wire.client import CallFailed


def session(api: RecordingApi, **more: Any) -> Session:
    return Session(api=api, region="eu-west-3", **more)


def missing(asked: dict[str, Any]) -> dict[str, Any]:
    raise CallFailed("404", "Not Found", status=404)


def test_the_usual_bucket_is_named_after_region_and_account_and_made_once() -> None:
    api = RecordingApi(HeadBucket=missing)
    user = session(api)

    assert user.default_bucket() == user.default_bucket() == "sagemaker-eu-west-3-123456789012"
    assert api.only("CreateBucket") == {
        "Bucket": "sagemaker-eu-west-3-123456789012",
        "CreateBucketConfiguration": {"LocationConstraint": "eu-west-3"},
    }


def test_a_bucket_in_the_first_region_is_made_without_naming_it() -> None:
    api = RecordingApi(HeadBucket=missing)
    Session(api=api, region="us-east-1").default_bucket()
    assert "CreateBucketConfiguration" not in api.only("CreateBucket")


def test_a_bucket_that_is_there_is_taken() -> None:
    api = RecordingApi()
    assert session(api, default_bucket="mine").default_bucket() == "mine"
    assert [operation for operation, _ in api.asked] == ["HeadBucket"]


def test_a_bucket_that_another_session_made_meanwhile_is_taken() -> None:
    def taken(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("BucketAlreadyOwnedByYou", "yours", status=409)

    api = RecordingApi(HeadBucket=missing, CreateBucket=taken)
    assert session(api, default_bucket="mine").default_bucket() == "mine"


def test_the_role_is_that_of_the_caller_with_its_path() -> None:
    assert get_execution_role(session(RecordingApi())) == "arn:aws:iam::123456789012:role/path/Trainer"


def test_a_role_that_may_not_be_read_is_still_named() -> None:
    def denied(asked: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("AccessDenied", "no", status=403)

    assert get_execution_role(session(RecordingApi(GetRole=denied))) == "arn:aws:iam::123456789012:role/Trainer"


def test_a_caller_without_a_role_must_name_one() -> None:
    api = RecordingApi(GetCallerIdentity={"Account": "1", "Arn": "arn:aws:iam::1:user/me"})
    with pytest.raises(InvalidRequest, match="which is not a role"):
        get_execution_role(session(api))


def test_a_role_may_be_given_by_name_or_by_arn() -> None:
    user = session(RecordingApi())
    assert user.expand_role("Trainer") == "arn:aws:iam::123456789012:role/path/Trainer"
    assert user.expand_role("arn:aws:iam::1:role/Other") == "arn:aws:iam::1:role/Other"


def test_uploads_tell_where_they_went(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1")
    api = RecordingApi()
    user = session(api, default_bucket="mine", default_bucket_prefix="team")

    assert user.upload_data(str(tmp_path / "data"), "theirs", "train") == "s3://theirs/train"
    assert user.upload_data(str(tmp_path / "data" / "a.csv")) == "s3://mine/team/data/a.csv"
    keys = [asked["Key"] for operation, asked in api.asked if operation == "PutObject"]
    assert keys == ["train/a.csv", "team/data/a.csv"]


def test_a_missing_path_is_not_uploaded() -> None:
    with pytest.raises(InvalidRequest, match='no file or folder "nothing" to upload'):
        session(RecordingApi()).upload_data("nothing")


def test_downloads_skip_the_marks_of_folders(tmp_path: Path) -> None:
    listed = {"Contents": [{"Key": "data/"}, {"Key": "data/a.csv"}], "IsTruncated": False}
    head = {"ContentLength": 1, "ETag": "t"}
    user = session(RecordingApi(ListObjectsV2=listed, HeadObject=head, GetObject={"Body": b"1"}))

    assert user.download_data(str(tmp_path), "mine", "data/") == [str(tmp_path / "a.csv")]
    assert (tmp_path / "a.csv").read_text() == "1"


def test_a_job_is_changed_as_far_as_is_asked() -> None:
    api = RecordingApi()
    Session(api=api).update_training_job("job", resource_config={"KeepAlivePeriodInSeconds": 60})
    assert api.only("UpdateTrainingJob") == {
        "TrainingJobName": "job",
        "ResourceConfig": {"KeepAlivePeriodInSeconds": 60},
    }
