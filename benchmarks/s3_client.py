"""One load on an S3 endpoint. s3_front.py runs it in its own process: `s3_client.py OPERATION BUCKET COUNT BYTES`.

Prints the seconds that the transfers took. A small object takes one request; large ones are transferred as boto3 does,
in parts and ranges of 8 MiB. Every byte that is read back is compared.
"""

import io
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from botocore.config import Config

THREADS = 8
MULTIPART = 8 * 1024 * 1024


def main(operation: str, bucket: str, count: int, size: int) -> None:
    s3 = boto3.client("s3", config=Config(max_pool_connections=2 * THREADS, retries={"total_max_attempts": 1}))
    action = {"put": put, "get": get, "prepare": prepare, "encrypt": encrypt, "clear": clear}[operation]
    body = pattern(size)
    started = time.perf_counter()
    action(s3, bucket, count, body)
    print(time.perf_counter() - started)


def pattern(size: int) -> bytes:
    # Its length is coprime to the part size, so that no two parts are equal.
    block = bytes(range(256)) * 4099
    return (block * (size // len(block) + 1))[:size]


def prepare(s3: Any, bucket: str, _count: int, _body: bytes) -> None:
    s3.create_bucket(Bucket=bucket)


def encrypt(s3: Any, bucket: str, _count: int, _body: bytes) -> None:
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})


def put(s3: Any, bucket: str, count: int, body: bytes) -> None:
    if len(body) >= MULTIPART:
        for number in range(count):
            s3.upload_fileobj(io.BytesIO(body), bucket, f"large/{number}")
        return
    with ThreadPoolExecutor(THREADS) as threads:
        keys = [f"small/{number:05}" for number in range(count)]
        list(threads.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=body), keys))


def get(s3: Any, bucket: str, count: int, body: bytes) -> None:
    if len(body) >= MULTIPART:
        for number in range(count):
            target = io.BytesIO()
            s3.download_fileobj(bucket, f"large/{number}", target)
            assert target.getbuffer() == body, "an object was returned changed"
        return
    with ThreadPoolExecutor(THREADS) as threads:
        keys = [f"small/{number:05}" for number in range(count)]
        got = threads.map(lambda key: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), keys)
        assert all(each == body for each in got), "an object was returned changed"


def clear(s3: Any, bucket: str, _count: int, _body: bytes) -> None:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        keys = [{"Key": each["Key"]} for each in page.get("Contents", [])]
        if keys:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
