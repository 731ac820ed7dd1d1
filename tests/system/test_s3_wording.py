"""Answers of the S3 front that clients and their test suites compare word by word."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from trainyard.testing.yard import RunningYard

BUCKET = "wording"


@pytest.fixture(scope="module")
def s3(yard: RunningYard) -> Iterator[Any]:
    known = yard.credentials
    opened = boto3.client(
        "s3",
        endpoint_url=yard.http,
        aws_access_key_id=known.access_key_id,
        aws_secret_access_key=known.secret_access_key,
        region_name="eu-west-3",
        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4"),
    )
    with closing(opened):
        opened.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
        opened.put_object(Bucket=BUCKET, Key="key", Body=b"hello")
        yield opened


def error(operation: Any, **arguments: Any) -> dict[str, str]:
    with pytest.raises(ClientError) as caught:
        operation(**arguments)
    told: dict[str, str] = caught.value.response["Error"]
    return {name: told[name] for name in told if name != "Resource"}


def test_missing_resources_are_reported_in_the_words_of_s3(s3: Any) -> None:
    assert error(s3.list_objects_v2, Bucket="nowhere") == {
        "Code": "NoSuchBucket",
        "Message": "The specified bucket does not exist",
        "BucketName": "nowhere",
    }
    assert error(s3.get_object, Bucket=BUCKET, Key="nothing") == {
        "Code": "NoSuchKey",
        "Message": "The specified key does not exist.",
        "Key": "nothing",
    }
    assert error(s3.get_bucket_tagging, Bucket=BUCKET) == {
        "Code": "NoSuchTagSet",
        "Message": "The TagSet does not exist",
        "BucketName": BUCKET,
    }


def test_a_bucket_that_the_caller_owns_already_is_reported_in_the_words_of_s3(s3: Any) -> None:
    again = {"Bucket": BUCKET, "CreateBucketConfiguration": {"LocationConstraint": "eu-west-3"}}
    assert error(s3.create_bucket, **again) == {
        "Code": "BucketAlreadyOwnedByYou",
        "Message": "Your previous request to create the named bucket succeeded and you already own it.",
        "BucketName": BUCKET,
    }
    assert error(s3.delete_bucket, Bucket=BUCKET)["Message"] == "The bucket you tried to delete is not empty"


def test_a_condition_that_does_not_hold_is_named(s3: Any) -> None:
    told = {"Code": "PreconditionFailed", "Message": "At least one of the pre-conditions you specified did not hold"}
    where = {"Bucket": BUCKET, "Key": "key"}
    assert error(s3.get_object, **where, IfMatch='"other"') == told | {"Condition": "If-Match"}
    assert error(s3.put_object, **where, Body=b"", IfNoneMatch="*") == told | {"Condition": "If-None-Match"}


def test_a_listing_and_a_header_tell_the_same_time(s3: Any) -> None:
    entry = s3.list_objects_v2(Bucket=BUCKET)["Contents"][0]
    head = s3.head_object(Bucket=BUCKET, Key="key")
    assert entry["LastModified"] == head["LastModified"]
    copied = s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=f"{BUCKET}/key")["CopyObjectResult"]
    assert copied["LastModified"] == s3.head_object(Bucket=BUCKET, Key="copy")["LastModified"]


def test_a_time_to_come_is_no_condition(s3: Any) -> None:
    where = {"Bucket": BUCKET, "Key": "key"}
    modified = s3.head_object(**where)["LastModified"]
    assert s3.head_object(**where, IfModifiedSince=modified + timedelta(days=1))["ContentLength"] == 5


def test_settings_that_are_true_may_be_put_and_those_that_are_not_there_deleted(s3: Any) -> None:
    s3.put_bucket_acl(Bucket=BUCKET, ACL="private")
    s3.put_object_acl(Bucket=BUCKET, Key="key", ACL="private")
    true = s3.get_object_acl(Bucket=BUCKET, Key="key")
    grants = {"Owner": true["Owner"], "Grants": true["Grants"]}
    s3.put_object_acl(Bucket=BUCKET, Key="key", AccessControlPolicy=grants)
    controls = s3.get_bucket_ownership_controls(Bucket=BUCKET)["OwnershipControls"]
    s3.put_bucket_ownership_controls(Bucket=BUCKET, OwnershipControls=controls)
    for delete in (s3.delete_bucket_policy, s3.delete_bucket_cors, s3.delete_public_access_block):
        assert delete(Bucket=BUCKET)["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert error(s3.put_bucket_acl, Bucket=BUCKET, ACL="public-read")["Code"] == "NotImplemented"
    assert error(s3.put_object, Bucket=BUCKET, Key="sse", ServerSideEncryption="ROT13")["Code"] == "InvalidArgument"


def test_a_browser_learns_that_no_other_site_may_read(yard: RunningYard, s3: Any) -> None:
    connection = http.client.HTTPConnection(urlsplit(yard.http).netloc, timeout=30)
    asking = {"Origin": "https://example.com", "Access-Control-Request-Method": "GET"}
    connection.request("OPTIONS", f"/{BUCKET}/key", headers=asking)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert (response.status, ElementTree.fromstring(answer).findtext("Code")) == (403, "AccessForbidden")
    assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control-")]
