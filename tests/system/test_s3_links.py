"""Links that carry headers in their query, as the SDKs for JavaScript, Go and Ruby make them, and boto3 old ones."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import boto3
import pytest
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from trainyard.testing.yard import RunningYard

BUCKET = "links"


def client(yard: RunningYard, signature: str) -> Any:
    known = yard.credentials
    return boto3.client(
        "s3",
        endpoint_url=yard.http,
        aws_access_key_id=known.access_key_id,
        aws_secret_access_key=known.secret_access_key,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, signature_version=signature),
    )


@pytest.fixture(scope="module")
def s3(yard: RunningYard) -> Iterator[Any]:
    with closing(client(yard, "s3v4")) as opened:
        opened.create_bucket(Bucket=BUCKET)
        yield opened


def link(yard: RunningYard, method: str, key: str, **parameters: str) -> str:
    """A link whose query holds the given headers, the whole of it signed."""
    query = "&".join(f"{name.replace('_', '-')}={quote(value, safe='')}" for name, value in parameters.items())
    request = AWSRequest(method=method, url=f"{yard.http}/{BUCKET}/{key}?{query}")
    known = yard.credentials
    credentials = Credentials(known.access_key_id, known.secret_access_key)
    S3SigV4QueryAuth(credentials, "s3", known.region, expires=60).add_auth(request)
    return str(request.url)


def follow(method: str, url: str, *, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, str]:
    """The status, and the code of the error if it is one."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers or {})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, ElementTree.fromstring(answer).findtext("Code", "") if response.status >= 300 else ""


@pytest.mark.flow
def test_a_link_says_what_the_object_is(yard: RunningYard, s3: Any) -> None:
    url = link(yard, "PUT", "said", x_amz_meta_epoch="7 ü", X_Amz_Tagging="a=1", x_amz_storage_class="STANDARD_IA")
    assert follow("PUT", url, body=b"hello") == (200, "")
    head = s3.head_object(Bucket=BUCKET, Key="said")
    assert head["Metadata"]["epoch"].encode("latin-1").decode() == "7 ü"
    assert head["StorageClass"] == "STANDARD_IA"
    assert s3.get_object_tagging(Bucket=BUCKET, Key="said")["TagSet"] == [{"Key": "a", "Value": "1"}]


def test_a_link_copies(yard: RunningYard, s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="source", Body=b"copied")
    assert follow("PUT", link(yard, "PUT", "copy", x_amz_copy_source=f"{BUCKET}/source")) == (200, "")
    with closing(s3.get_object(Bucket=BUCKET, Key="copy")["Body"]) as body:
        assert body.read() == b"copied"


def test_a_link_to_a_feature_that_the_yard_lacks_is_refused(yard: RunningYard, s3: Any) -> None:
    url = link(yard, "PUT", "public", x_amz_acl="public-read")
    assert follow("PUT", url, body=b"hello") == (501, "NotImplemented")
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="public")["KeyCount"] == 0


def test_nobody_can_add_a_header_to_a_link(yard: RunningYard, s3: Any) -> None:
    plain, linked = link(yard, "PUT", "added"), link(yard, "PUT", "added", x_amz_meta_a="linked")
    for url in (plain, linked):
        assert follow("PUT", url, body=b"x", headers={"x-amz-meta-a": "added"}) == (403, "AccessDenied")
    assert follow("PUT", f"{plain}&x-amz-meta-a=added", body=b"x") == (403, "SignatureDoesNotMatch")
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="added")["KeyCount"] == 0


def test_the_checksum_that_javascript_makes_of_no_body_does_not_matter(yard: RunningYard, s3: Any) -> None:
    url = link(yard, "PUT", "summed", x_amz_checksum_crc32="AAAAAA==", x_amz_sdk_checksum_algorithm="CRC32")
    assert follow("PUT", url, body=b"hello") == (200, "")
    assert s3.head_object(Bucket=BUCKET, Key="summed")["ContentLength"] == 5


def test_an_old_link_carries_headers_too(yard: RunningYard, s3: Any) -> None:
    said = {"Metadata": {"epoch": "7"}, "ContentType": "text/csv", "Tagging": "a=1"}
    with closing(client(yard, "s3")) as old:
        url = old.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "old", **said})
    assert "Signature=" in url
    assert "x-amz-meta-epoch=7" in url
    assert follow("PUT", url, body=b"hello") == (200, "")
    head = s3.head_object(Bucket=BUCKET, Key="old")
    assert (head["Metadata"], head["ContentType"]) == ({"epoch": "7"}, "text/csv")
    assert s3.get_object_tagging(Bucket=BUCKET, Key="old")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert follow("PUT", url.replace("epoch=7", "epoch=8"), body=b"x") == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("spelling", ["tagging", "%74agging", "t%61gging="])
def test_an_old_link_to_an_object_does_not_reach_its_tags(yard: RunningYard, s3: Any, spelling: str) -> None:
    tags = {"TagSet": [{"Key": "a", "Value": "1"}]}
    s3.put_object(Bucket=BUCKET, Key="tagged", Body=b"x", Tagging="a=1")
    body = b"<Tagging><TagSet/></Tagging>"
    with closing(client(yard, "s3")) as old:
        for method, operation in (("GET", "get_object"), ("PUT", "put_object"), ("DELETE", "delete_object")):
            url = old.generate_presigned_url(operation, Params={"Bucket": BUCKET, "Key": "tagged"}, ExpiresIn=60)
            told = follow(method, f"{url}&{spelling}", body=body if method == "PUT" else b"")
            assert told == (403, "SignatureDoesNotMatch")
    assert s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"] == tags["TagSet"]


def test_metadata_that_would_break_an_answer_is_refused(yard: RunningYard, s3: Any) -> None:
    url = link(yard, "PUT", "broken", **{"x-amz-meta-a%0D%0Ab": "c"})
    assert follow("PUT", url, body=b"x") == (400, "InvalidArgument")
    assert follow("PUT", link(yard, "PUT", "broken", x_amz_meta_a="b\r\nc"), body=b"x") == (400, "InvalidArgument")
    s3.put_object(Bucket=BUCKET, Key="whole", Body=b"x")
    url = link(yard, "GET", "whole", response_content_disposition="inline\r\nSet-Cookie: a=b")
    assert follow("GET", url) == (400, "InvalidArgument")
