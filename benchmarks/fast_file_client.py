"""Reads a data set as a training program would, run in a process of its own by fast_file.py.

`fast_file_client.py WAY PLACE PATTERN`, where WAY is files, boto3 or s3fs, and PLACE a folder or `bucket/prefix/`.
Prints the seconds from the first call to the first batch and to the last, and a digest of what was read. Imports are
not counted. boto3 downloads everything first, in eight threads; s3fs streams.
"""

import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

BATCH = 32  # reads
PIECE_BYTES = 128 << 10
RANDOM_READS = 256
RANDOM_BYTES = 64 << 10
THREADS = 8

Open = Callable[[str], BinaryIO]


def main(way: str, place: str, pattern: str) -> None:
    begin = {"files": _files, "boto3": _boto3, "s3fs": _s3fs}[way](place)
    digest, first_s = hashlib.sha256(), 0.0
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as scratch:
        for number, data in enumerate(PATTERNS[pattern](begin(Path(scratch)), pattern), 1):
            digest.update(data)
            if number == BATCH:
                first_s = time.perf_counter() - started
        print(json.dumps({"first": first_s, "total": time.perf_counter() - started, "digest": digest.hexdigest()}))


def _in_order(files: dict[str, Open], folder: str) -> Iterator[bytes]:
    for name in sorted(files):
        if name.startswith(f"{folder}/"):
            with files[name](name) as file:
                yield file.read()


def _front_to_back(files: dict[str, Open], _: str) -> Iterator[bytes]:
    with files["large"]("large") as file:
        while data := file.read(PIECE_BYTES):
            yield data


def _here_and_there(files: dict[str, Open], _: str) -> Iterator[bytes]:
    chance = random.Random(3)
    with files["large"]("large") as file:
        size = file.seek(0, 2)
        for _number in range(RANDOM_READS):
            file.seek(chance.randrange(size - RANDOM_BYTES))
            yield file.read(RANDOM_BYTES)


PATTERNS: dict[str, Callable[[dict[str, Open], str], Iterator[bytes]]] = {
    "small": _in_order,
    "sequential": _front_to_back,
    "random": _here_and_there,
}


def _files(folder: str) -> Callable[[Path], dict[str, Open]]:
    def begin(_: Path) -> dict[str, Open]:
        return _of_folder(Path(folder))

    return begin


def _of_folder(folder: Path) -> dict[str, Open]:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return {name: lambda each: (folder / each).open("rb") for name in names}


def _boto3(place: str) -> Callable[[Path], dict[str, Open]]:
    import boto3
    from botocore.config import Config

    bucket, _, prefix = place.partition("/")

    def begin(scratch: Path) -> dict[str, Open]:
        s3 = boto3.client("s3", config=Config(max_pool_connections=2 * THREADS))

        def download(key: str) -> None:
            target = scratch / key.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, key, str(target))

        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(download, [each["Key"] for page in pages for each in page["Contents"]]))
        return _of_folder(scratch)

    return begin


def _s3fs(place: str) -> Callable[[Path], dict[str, Open]]:
    import s3fs

    def begin(_: Path) -> dict[str, Open]:
        store: Any = s3fs.S3FileSystem()
        names = [path.removeprefix(place) for path in store.find(place)]
        return {name: lambda each: store.open(place + each, "rb") for name in names}

    return begin


if __name__ == "__main__":
    main(*sys.argv[1:])
