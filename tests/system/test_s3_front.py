"""The S3 front as boto3 meets it, over http and over https."""

import hashlib
import io
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from trainyard.testing.yard import RunningYard

ALGORITHMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]
MEBIBYTE = 1024 * 1024

# Whatever S3 takes for a key and a URL or a document could spoil.
ODD_KEYS = [
    "a b+c",
    "a/../b/./c",
    "..",
    "/lead",
    "trail/",
    "a//b",
    "%41%2F",
    "?versionId=1&x=y#z",
    "<&>\"'",
    "ümlaut/日本/😀",
    "line\nfeed\r\ttab",
    "~!@$^*(){}[]|\\:;,=`",
    "k" * 1024,
]
UNSPEAKABLE_KEYS = ["bell\x07", "escape\x1b[0m", "delete\x7f", "last\uffff"]


def client(yard: RunningYard, endpoint: str, **options: Any) -> Any:
    known = yard.credentials
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=known.access_key_id,
        aws_secret_access_key=known.secret_access_key,
        region_name=known.region,
        verify=str(yard.home.ca_bundle),
        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4", **options),
    )


@pytest.fixture(params=["http", "https"])
def s3(yard: RunningYard, request: pytest.FixtureRequest) -> Iterator[Any]:
    with closing(client(yard, yard.https if request.param == "https" else yard.http)) as opened:
        yield opened


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    name = "b" + hashlib.sha256(request.node.name.encode()).hexdigest()[:40]
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    return name


def refusal(operation: Any, **arguments: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        operation(**arguments)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def body(answer: Any) -> bytes:
    with closing(answer["Body"]) as stream:
        return bytes(stream.read())


def test_a_bucket_lives_and_dies(s3: Any, bucket: str) -> None:
    assert s3.head_bucket(Bucket=bucket)["BucketRegion"] == "eu-west-3"
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] == "eu-west-3"
    assert bucket in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    assert [entry["Name"] for entry in s3.list_buckets(Prefix=bucket, MaxBuckets=1)["Buckets"]] == [bucket]
    s3.put_object(Bucket=bucket, Key="key", Body=b"hello")
    assert refusal(s3.delete_bucket, Bucket=bucket) == ("BucketNotEmpty", 409)
    s3.delete_object(Bucket=bucket, Key="key")
    s3.delete_bucket(Bucket=bucket)
    assert refusal(s3.head_bucket, Bucket=bucket) == ("404", 404)
    assert refusal(s3.list_objects_v2, Bucket=bucket) == ("NoSuchBucket", 404)


def test_an_object_comes_back_with_all_that_was_said_of_it(s3: Any, bucket: str) -> None:
    said = {
        "ContentType": "text/csv",
        "CacheControl": "no-cache",
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "ContentDisposition": "inline",
        "Metadata": {"epoch": "7"},
        "ServerSideEncryption": "aws:kms",
        "StorageClass": "STANDARD_IA",
    }
    put = s3.put_object(Bucket=bucket, Key="key", Body=b"hello", Tagging="team=vision", **said)
    assert put["ETag"] == f'"{hashlib.md5(b"hello").hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="key")
    assert body(got) == b"hello"
    assert {name: got[name] for name in said} == said
    assert got["TagCount"] == 1
    assert s3.get_object_tagging(Bucket=bucket, Key="key")["TagSet"] == [{"Key": "team", "Value": "vision"}]


def test_refusals_use_the_words_of_s3(s3: Any, bucket: str) -> None:
    assert refusal(s3.get_object, Bucket=bucket, Key="nothing") == ("NoSuchKey", 404)
    assert refusal(s3.head_object, Bucket=bucket, Key="nothing") == ("404", 404)
    assert refusal(s3.put_object, Bucket="nowhere", Key="key", Body=b"hello") == ("NoSuchBucket", 404)
    assert refusal(s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"x") == ("KeyTooLongError", 400)
    assert refusal(s3.put_object, Bucket=bucket, Key="a\0b", Body=b"x") == ("InvalidArgument", 400)
    assert refusal(s3.create_bucket, Bucket="UPPER") == ("InvalidBucketName", 400)
    assert refusal(s3.get_object, Bucket=bucket, Key="key", VersionId="abc") == ("InvalidArgument", 400)


def test_an_unsupported_operation_says_so(s3: Any, bucket: str) -> None:
    versioning = {"Status": "Enabled"}
    assert refusal(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=versioning) == (
        "NotImplemented",
        501,
    )
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    assert refusal(s3.put_object, Bucket=bucket, Key="key", ACL="public-read") == ("NotImplemented", 501)
    assert refusal(s3.get_bucket_policy, Bucket=bucket) == ("NoSuchBucketPolicy", 404)
    assert s3.get_bucket_acl(Bucket=bucket)["Grants"][0]["Permission"] == "FULL_CONTROL"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_checksum_is_verified_kept_and_given_back(s3: Any, bucket: str, algorithm: str) -> None:
    data, member = os.urandom(100_000), f"Checksum{algorithm}"
    put = s3.put_object(Bucket=bucket, Key="key", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert body(got) == data
    assert got[member] == put[member]
    assert got["ResponseMetadata"]["ChecksumAlgorithm"] == algorithm.lower(), "botocore compared it with the body"
    told = s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=["Checksum", "ObjectSize"])
    assert (told["Checksum"][member], told["ObjectSize"]) == (put[member], len(data))
    wrong = {member: put[member]}
    assert refusal(s3.put_object, Bucket=bucket, Key="key", Body=b"other", **wrong) == ("BadDigest", 400)
    assert s3.head_object(Bucket=bucket, Key="key")["ContentLength"] == len(data)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_checksum_goes_with_parts(s3: Any, bucket: str, algorithm: str) -> None:
    where = {"Bucket": bucket, "Key": "parts"}
    begun = s3.create_multipart_upload(**where, ChecksumAlgorithm=algorithm)
    parts = []
    for number, data in enumerate((b"a" * 5 * MEBIBYTE, b"the end"), 1):
        upload = {"UploadId": begun["UploadId"], "PartNumber": number}
        put = s3.upload_part(**where, **upload, Body=data, ChecksumAlgorithm=algorithm)
        member = f"Checksum{algorithm}"
        parts.append({"PartNumber": number, "ETag": put["ETag"], member: put[member]})
    done = s3.complete_multipart_upload(**where, UploadId=begun["UploadId"], MultipartUpload={"Parts": parts})
    assert done["ChecksumType"] == begun["ChecksumType"]
    head = s3.head_object(**where, ChecksumMode="ENABLED")
    assert (head[f"Checksum{algorithm}"], head["ETag"]) == (done[f"Checksum{algorithm}"], done["ETag"])


@pytest.mark.flow
def test_twenty_megabytes_go_up_in_parts_and_come_back(s3: Any, bucket: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(20 * MEBIBYTE))
    config = TransferConfig(multipart_threshold=8 * MEBIBYTE, multipart_chunksize=8 * MEBIBYTE, max_concurrency=4)
    s3.upload_file(str(source), bucket, "big", ExtraArgs={"Metadata": {"epoch": "7"}}, Config=config)
    head = s3.head_object(Bucket=bucket, Key="big", PartNumber=1)
    assert (head["PartsCount"], head["ContentLength"], head["Metadata"]) == (3, 8 * MEBIBYTE, {"epoch": "7"})
    s3.download_file(bucket, "big", str(target), Config=config)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(source.read_bytes()).digest()
    s3.copy({"Bucket": bucket, "Key": "big"}, bucket, "copy", Config=config)
    assert body(s3.get_object(Bucket=bucket, Key="copy")) == source.read_bytes()
    assert s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_uploads_in_progress_are_listed_and_aborted(s3: Any, bucket: str) -> None:
    begun = s3.create_multipart_upload(Bucket=bucket, Key="a b")["UploadId"]
    where = {"Bucket": bucket, "Key": "a b", "UploadId": begun}
    s3.upload_part(**where, PartNumber=3, Body=b"hello")
    assert [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["a b"]
    assert [(part["PartNumber"], part["Size"]) for part in s3.list_parts(**where)["Parts"]] == [(3, 5)]
    assert refusal(s3.complete_multipart_upload, **where) == ("MalformedXML", 400)
    s3.abort_multipart_upload(**where)
    assert refusal(s3.list_parts, **where) == ("NoSuchUpload", 404)


def test_ranges_are_pieces(s3: Any, bucket: str) -> None:
    data = os.urandom(MEBIBYTE)
    s3.put_object(Bucket=bucket, Key="key", Body=data)
    got = s3.get_object(Bucket=bucket, Key="key", Range="bytes=1000-600999")
    assert (body(got), got["ContentRange"]) == (data[1000:601_000], f"bytes 1000-600999/{MEBIBYTE}")
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert body(s3.get_object(Bucket=bucket, Key="key", Range="bytes=-7")) == data[-7:]
    assert refusal(s3.get_object, Bucket=bucket, Key="key", Range=f"bytes={MEBIBYTE}-") == ("InvalidRange", 416)


def test_conditions_are_checked(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="key", Body=b"hello", IfNoneMatch="*")["ETag"]
    where = {"Bucket": bucket, "Key": "key"}
    modified = s3.head_object(**where)["LastModified"]
    assert refusal(s3.put_object, **where, Body=b"x", IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert refusal(s3.get_object, **where, IfNoneMatch=etag) == ("304", 304)
    assert refusal(s3.get_object, **where, IfModifiedSince=modified) == ("304", 304)
    assert refusal(s3.get_object, **where, IfMatch='"other"') == ("PreconditionFailed", 412)
    earlier = modified - timedelta(hours=1)
    assert refusal(s3.head_object, **where, IfUnmodifiedSince=earlier) == ("412", 412)
    assert body(s3.get_object(**where, IfMatch=etag)) == b"hello"
    s3.put_object(**where, Body=b"new", IfMatch=etag)
    assert refusal(s3.delete_object, **where, IfMatch=etag) == ("PreconditionFailed", 412)


def test_a_copy_keeps_or_replaces_what_is_said_of_it(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a +ü?", Body=b"hello", Metadata={"epoch": "7"})
    source = {"Bucket": bucket, "Key": "a +ü?"}
    s3.copy_object(Bucket=bucket, Key="kept", CopySource=source)
    s3.copy_object(Bucket=bucket, Key="new", CopySource=source, MetadataDirective="REPLACE", Metadata={"step": "9"})
    assert s3.head_object(Bucket=bucket, Key="kept")["Metadata"] == {"epoch": "7"}
    assert s3.head_object(Bucket=bucket, Key="new")["Metadata"] == {"step": "9"}
    itself = {"Bucket": bucket, "Key": "a +ü?", "CopySource": source}
    assert refusal(s3.copy_object, **itself) == ("InvalidRequest", 400)


@pytest.mark.parametrize("pages", ["list_objects", "list_objects_v2", "list_object_versions"])
def test_odd_keys_are_listed_as_they_are(s3: Any, bucket: str, pages: str) -> None:
    keys = [*ODD_KEYS, *UNSPEAKABLE_KEYS]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    listed = [
        entry["Key"]
        for page in s3.get_paginator(pages).paginate(Bucket=bucket, PaginationConfig={"PageSize": 4})
        for entry in page.get("Versions", []) + page.get("Contents", [])
    ]
    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        assert body(s3.get_object(Bucket=bucket, Key=key)) == key.encode()


def test_odd_keys_are_deleted_together(s3: Any, bucket: str) -> None:
    for key in ODD_KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in ODD_KEYS]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == sorted(ODD_KEYS)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_folders_are_listed_in_pages(s3: Any, bucket: str) -> None:
    for key in ("a", "logs 1/x", "logs 1/y", "logs 2/x", "z"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    for name in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(name).paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 2})
        found = pages.build_full_result()
        assert [entry["Key"] for entry in found["Contents"]] == ["a", "z"]
        assert [entry["Prefix"] for entry in found["CommonPrefixes"]] == ["logs 1/", "logs 2/"]


def test_tags_are_kept(s3: Any, bucket: str) -> None:
    tags = {"TagSet": [{"Key": "team", "Value": "vision + speech"}]}
    s3.put_object(Bucket=bucket, Key="key", Body=b"x")
    s3.put_object_tagging(Bucket=bucket, Key="key", Tagging=tags)
    s3.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    assert s3.get_object_tagging(Bucket=bucket, Key="key")["TagSet"] == tags["TagSet"]
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags["TagSet"]
    s3.delete_object_tagging(Bucket=bucket, Key="key")
    s3.delete_bucket_tagging(Bucket=bucket)
    assert s3.get_object_tagging(Bucket=bucket, Key="key")["TagSet"] == []
    assert refusal(s3.get_bucket_tagging, Bucket=bucket) == ("NoSuchTagSet", 404)


def test_the_owner_may_be_demanded(s3: Any, bucket: str, yard: RunningYard) -> None:
    owner = yard.credentials.account
    s3.put_object(Bucket=bucket, Key="key", Body=b"x", ExpectedBucketOwner=owner)
    wrong = {"ExpectedBucketOwner": "123456789012"}
    assert refusal(s3.put_object, Bucket=bucket, Key="key", Body=b"y", **wrong) == ("AccessDenied", 403)
    assert refusal(s3.head_bucket, Bucket=bucket, **wrong) == ("403", 403)
    assert body(s3.get_object(Bucket=bucket, Key="key", ExpectedBucketOwner=owner)) == b"x"


def test_a_link_gives_and_takes_an_object(s3: Any, bucket: str, yard: RunningYard) -> None:
    trust = ssl.create_default_context(cafile=str(yard.home.ca_bundle))
    where = {"Bucket": bucket, "Key": "a b/ü"}

    def fetch(url: str, *, data: bytes | None = None, **headers: str) -> Any:
        request = urllib.request.Request(url, data=data, headers=headers, method="PUT" if data else "GET")
        return urllib.request.urlopen(request, context=trust if url.startswith("https") else None, timeout=30)

    put = s3.generate_presigned_url("put_object", Params={**where, "ContentType": "text/csv", "Tagging": "a=1"})
    with fetch(put, data=b"hello", **{"Content-Type": "text/csv", "x-amz-tagging": "a=1"}) as answer:
        assert answer.status == 200
    get = s3.generate_presigned_url("get_object", Params={**where, "ResponseContentType": "text/html"})
    with fetch(get) as answer:
        assert (answer.read(), answer.headers["content-type"]) == (b"hello", "text/html")
    assert s3.head_object(**where)["TagCount"] == 1
    with pytest.raises(urllib.error.HTTPError) as caught, fetch(get.replace("text%2Fhtml", "text%2Fplain")):
        pass
    with caught.value as refused:
        assert refused.status == 403


def test_a_bucket_may_be_named_by_the_host(yard: RunningYard, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def with_names_below_localhost(host: Any, *arguments: Any, **options: Any) -> Any:
        below = isinstance(host, str) and host.endswith(".localhost")
        return resolve("127.0.0.1" if below else host, *arguments, **options)

    # RFC 6761 makes these names the loopback, but not every resolver knows it.
    monkeypatch.setattr(socket, "getaddrinfo", with_names_below_localhost)
    endpoint = f"http://localhost:{urlsplit(yard.http).port}"
    with closing(client(yard, endpoint, s3={"addressing_style": "virtual"})) as s3:
        s3.create_bucket(Bucket="by-host", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
        s3.put_object(Bucket="by-host", Key="a b/ü", Body=b"hello")
        assert body(s3.get_object(Bucket="by-host", Key="a b/ü")) == b"hello"
        assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="by-host")["Contents"]] == ["a b/ü"]
        begun = s3.create_multipart_upload(Bucket="by-host", Key="parts")["UploadId"]
        where = {"Bucket": "by-host", "Key": "parts", "UploadId": begun}
        etag = s3.upload_part(**where, PartNumber=1, Body=b"x")["ETag"]
        done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
        assert done["Location"] == f"http://by-host.{urlsplit(endpoint).netloc}/parts"


def announced_put(yard: RunningYard, bucket: str, *, data: bytes, size: int) -> bytes:
    """The head of a PUT whose body is to be sent only when the server asks for it."""
    known = yard.credentials
    request = AWSRequest(
        method="PUT",
        url=f"{yard.http}/{bucket}/asked-for",
        headers={"Content-Length": str(size), "Expect": "100-continue"},
        data=data,
    )
    credentials = Credentials(known.access_key_id, known.secret_access_key)
    S3SigV4Auth(credentials, "s3", known.region).add_auth(request)
    lines = [f"PUT /{bucket}/asked-for HTTP/1.1", f"Host: {urlsplit(yard.http).netloc}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]).encode()


@pytest.mark.parametrize("size", [5, 3 * MEBIBYTE])
def test_a_body_is_asked_for_before_it_is_sent(yard: RunningYard, size: int) -> None:
    with closing(client(yard, yard.http)) as s3:
        s3.create_bucket(Bucket=f"asks{size}", CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    address = urlsplit(yard.http)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(announced_put(yard, f"asks{size}", data=b"x" * size, size=size))
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"x" * size)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_a_large_body_for_a_missing_bucket_is_not_asked_for(yard: RunningYard) -> None:
    address = urlsplit(yard.http)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(announced_put(yard, "nowhere", data=b"", size=1024 * MEBIBYTE))
        with connection.makefile("rb") as stream:
            answer = stream.read()
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"NoSuchBucket" in answer
