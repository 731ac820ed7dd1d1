"""Buckets and objects with boto3: whole, in parts, by range, conditional, presigned, and listed."""

import base64
import hashlib
import os
import socket
import ssl
import tempfile
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

MEBIBYTE = 1024 * 1024


def main() -> None:
    s3 = boto3.client("s3")
    bucket = f"boto3-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=bucket)
    s3.get_waiter("bucket_exists").wait(Bucket=bucket, WaiterConfig={"Delay": 1, "MaxAttempts": 5})
    assert bucket in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    whole_objects(s3, bucket)
    ranges_and_conditions(s3, bucket)
    checksums(s3, bucket)
    copies_and_tags(s3, bucket)
    transfers(s3, bucket)
    parts_by_hand(s3, bucket)
    listings(s3, bucket)
    odd_keys(s3, bucket)
    presigned(s3, bucket)
    virtual_hosts(bucket)
    refusals(s3, bucket)
    boto3.resource("s3").Bucket(bucket).objects.all().delete()
    s3.delete_bucket(Bucket=bucket)
    assert bucket not in [each["Name"] for each in s3.list_buckets()["Buckets"]]


def whole_objects(s3: Any, bucket: str) -> None:
    body = os.urandom(100_000)
    put = s3.put_object(Bucket=bucket, Key="a/b.bin", Body=body, ContentType="text/x-test", Metadata={"colour": "red"})
    assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    got = s3.get_object(Bucket=bucket, Key="a/b.bin")
    assert got["Body"].read() == body
    assert (got["ContentType"], got["Metadata"], got["ETag"]) == ("text/x-test", {"colour": "red"}, put["ETag"])
    head = s3.head_object(Bucket=bucket, Key="a/b.bin")
    assert head["ContentLength"] == len(body)
    assert head["LastModified"].tzinfo is not None
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert s3.get_object(Bucket=bucket, Key="empty")["Body"].read() == b""
    s3.delete_object(Bucket=bucket, Key="empty")
    s3.delete_object(Bucket=bucket, Key="never was there")
    assert code(lambda: s3.head_object(Bucket=bucket, Key="empty")) == "404"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="empty")) == "NoSuchKey"


def ranges_and_conditions(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="digits", Body=b"0123456789")
    etag = s3.head_object(Bucket=bucket, Key="digits")["ETag"]
    part = s3.get_object(Bucket=bucket, Key="digits", Range="bytes=2-5")
    assert (part["Body"].read(), part["ContentRange"]) == (b"2345", "bytes 2-5/10")
    assert part["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert s3.get_object(Bucket=bucket, Key="digits", Range="bytes=-3")["Body"].read() == b"789"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="digits", Range="bytes=20-")) == "InvalidRange"
    assert s3.get_object(Bucket=bucket, Key="digits", IfMatch=etag)["Body"].read() == b"0123456789"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="digits", IfMatch='"other"')) == "PreconditionFailed"
    assert code(lambda: s3.get_object(Bucket=bucket, Key="digits", IfNoneMatch=etag)) == "304"
    assert code(lambda: s3.put_object(Bucket=bucket, Key="digits", Body=b"x", IfNoneMatch="*")) == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="digits")["Body"].read() == b"0123456789"


def checksums(s3: Any, bucket: str) -> None:
    body = b"summed" * 1000
    sha256 = base64.b64encode(hashlib.sha256(body).digest()).decode()
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        s3.put_object(Bucket=bucket, Key=algorithm, Body=body, ChecksumAlgorithm=algorithm)
        got = s3.get_object(Bucket=bucket, Key=algorithm, ChecksumMode="ENABLED")
        assert got["Body"].read() == body
        assert got[f"Checksum{algorithm}"]
    assert s3.head_object(Bucket=bucket, Key="SHA256", ChecksumMode="ENABLED")["ChecksumSHA256"] == sha256
    wrong = base64.b64encode(bytes(32)).decode()
    refused = code(lambda: s3.put_object(Bucket=bucket, Key="wrong", Body=body, ChecksumSHA256=wrong))
    assert refused == "BadDigest"
    assert code(lambda: s3.head_object(Bucket=bucket, Key="wrong")) == "404"


def copies_and_tags(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="first", Body=b"copy me", Metadata={"kept": "yes"}, Tagging="team=red&year=26")
    s3.copy_object(Bucket=bucket, Key="second", CopySource={"Bucket": bucket, "Key": "first"})
    got = s3.get_object(Bucket=bucket, Key="second")
    assert (got["Body"].read(), got["Metadata"]) == (b"copy me", {"kept": "yes"})
    source = {"Bucket": bucket, "Key": "first"}
    s3.copy_object(Bucket=bucket, Key="third", CopySource=source, MetadataDirective="REPLACE", Metadata={"new": "1"})
    assert s3.head_object(Bucket=bucket, Key="third")["Metadata"] == {"new": "1"}
    assert tags(s3, bucket, "first") == {"team": "red", "year": "26"}
    s3.put_object_tagging(Bucket=bucket, Key="first", Tagging={"TagSet": [{"Key": "team", "Value": "blue"}]})
    assert tags(s3, bucket, "first") == {"team": "blue"}
    s3.delete_object_tagging(Bucket=bucket, Key="first")
    assert tags(s3, bucket, "first") == {}


def transfers(s3: Any, bucket: str) -> None:
    """upload_file and download_file split large files into parts and ranges, several at once."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.write_bytes(os.urandom(21 * MEBIBYTE + 17))
        config = TransferConfig(multipart_threshold=8 * MEBIBYTE, multipart_chunksize=8 * MEBIBYTE)
        s3.upload_file(str(source), bucket, "large", Config=config)
        assert s3.head_object(Bucket=bucket, Key="large")["ETag"].endswith('-3"')
        s3.download_file(bucket, "large", str(target), Config=config)
        assert target.read_bytes() == source.read_bytes()


def parts_by_hand(s3: Any, bucket: str) -> None:
    where = {"Bucket": bucket, "Key": "joined"}
    upload = s3.create_multipart_upload(**where)["UploadId"]
    assert upload in [each["UploadId"] for each in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]]
    first = s3.upload_part(**where, UploadId=upload, PartNumber=1, Body=b"a" * 5 * MEBIBYTE)
    copied = s3.upload_part_copy(
        **where, UploadId=upload, PartNumber=2, CopySource=f"{bucket}/large", CopySourceRange="bytes=0-9"
    )
    listed = s3.list_parts(**where, UploadId=upload)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(1, 5 * MEBIBYTE), (2, 10)]
    etags = [first["ETag"], copied["CopyPartResult"]["ETag"]]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
    s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})
    beginning = s3.get_object(Bucket=bucket, Key="large", Range="bytes=0-9")["Body"].read()
    assert s3.get_object(**where)["Body"].read() == b"a" * 5 * MEBIBYTE + beginning
    given_up = s3.create_multipart_upload(**where)["UploadId"]
    s3.abort_multipart_upload(**where, UploadId=given_up)
    assert code(lambda: s3.list_parts(**where, UploadId=given_up)) == "NoSuchUpload"


def listings(s3: Any, bucket: str) -> None:
    keys = [f"list/{folder}/{number:02}" for folder in ("x", "y") for number in range(12)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b".")
    for operation in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(operation).paginate(Bucket=bucket, Prefix="list/", PaginationConfig={"PageSize": 5})
        assert [each["Key"] for page in pages for each in page["Contents"]] == keys
        top = getattr(s3, operation)(Bucket=bucket, Prefix="list/", Delimiter="/")
        assert [each["Prefix"] for each in top["CommonPrefixes"]] == ["list/x/", "list/y/"]
    removed = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]})
    assert sorted(each["Key"] for each in removed["Deleted"]) == keys
    assert s3.list_objects_v2(Bucket=bucket, Prefix="list/")["KeyCount"] == 0


def odd_keys(s3: Any, bucket: str) -> None:
    names = ["späß & co", "a+b=c?d#e", "per%20cent%", "/two", "./dot", "../up", "q'\"<>", "日本", "end/", "~", " "]
    keys = [f"odd/{name}" for name in names]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for key in keys:
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    listed = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix="odd/")["Contents"]]
    assert listed == sorted(keys, key=str.encode)
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})


def presigned(s3: Any, bucket: str) -> None:
    place = {"Bucket": bucket, "Key": "by/link"}
    upload = urllib.request.Request(s3.generate_presigned_url("put_object", Params=place), data=b"linked", method="PUT")
    trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
    with urllib.request.urlopen(upload, context=trust) as answer:
        assert answer.status == 200
    link = s3.generate_presigned_url("get_object", Params=place, ExpiresIn=60)
    with urllib.request.urlopen(link, context=trust) as answer:
        assert answer.read() == b"linked"


def virtual_hosts(bucket: str) -> None:
    """The bucket as part of the host name. Over https, each would need its own certificate, which no local yard has."""
    endpoint = os.environ["AWS_ENDPOINT_URL"].replace("127.0.0.1", "localhost")
    if endpoint.startswith("https"):
        return
    resolve_names_below_localhost()
    addressed = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "virtual"}))
    addressed.put_object(Bucket=bucket, Key="hosted", Body=b"by host name")
    assert addressed.get_object(Bucket=bucket, Key="hosted")["Body"].read() == b"by host name"


def resolve_names_below_localhost() -> None:
    """Resolve them as RFC 6761 says, and as browsers and systemd do; glibc alone knows only `localhost` itself."""
    look_up = socket.getaddrinfo

    def look_up_local(host: Any, *arguments: Any, **options: Any) -> Any:
        is_local = isinstance(host, str) and host.endswith(".localhost")
        return look_up("127.0.0.1" if is_local else host, *arguments, **options)

    socket.getaddrinfo = look_up_local


def refusals(s3: Any, bucket: str) -> None:
    missing = f"missing-{uuid.uuid4().hex[:12]}"
    assert code(lambda: s3.list_objects_v2(Bucket=missing)) == "NoSuchBucket"
    assert code(lambda: s3.head_bucket(Bucket=missing)) == "404"
    assert code(lambda: s3.delete_bucket(Bucket=bucket)) == "BucketNotEmpty"
    assert code(lambda: s3.create_bucket(Bucket="No_Such_Name")) == "InvalidBucketName"
    assert code(lambda: s3.get_bucket_website(Bucket=bucket)) == "NoSuchWebsiteConfiguration"
    versioning = {"Status": "Enabled"}
    assert code(lambda: s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versioning)) == "NotImplemented"
    assert code(lambda: s3.put_object(Bucket=bucket, Key="key", ACL="public-read")) == "NotImplemented"
    known = boto3.Session().get_credentials().access_key
    other = boto3.client("s3", aws_access_key_id=known, aws_secret_access_key="not the secret")
    assert code(lambda: other.list_buckets()) == "SignatureDoesNotMatch"


def tags(s3: Any, bucket: str, key: str) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]}


def code(call: Any) -> str:
    """Return the error code of a refused call."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "no error"


main()
