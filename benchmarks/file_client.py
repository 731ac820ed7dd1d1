"""Downloads a prefix. file_channel.py runs it in its own process: `file_client.py PEER PREFIX FOLDER`.

PREFIX is `bucket/prefix/`. Prints the seconds from the first call to the last byte; imports are not counted. Each peer
follows its documentation: boto3 uses `download_file` in eight threads, s3fs uses `get`.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 8


def main(peer: str, prefix: str, folder: str) -> None:
    download = {"boto3": with_boto3, "s3fs": with_s3fs}[peer]
    print(download(prefix, Path(folder)))


def with_boto3(prefix: str, folder: Path) -> float:
    import boto3
    from botocore.config import Config

    started = time.perf_counter()
    s3 = boto3.client("s3", config=Config(max_pool_connections=2 * THREADS))
    bucket, _, beginning = prefix.partition("/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=beginning)
    keys = [each["Key"] for page in pages for each in page["Contents"]]
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda key: s3.download_file(bucket, key, folder / key.removeprefix(beginning)), keys))
    return time.perf_counter() - started


def with_s3fs(prefix: str, folder: Path) -> float:
    import s3fs

    started = time.perf_counter()
    s3fs.S3FileSystem().get(prefix, str(folder), recursive=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main(*sys.argv[1:])
