"""kill -9 in the middle of 200 concurrent writes, 20 times over on one home folder."""

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.yard import RunningYard, running_yard

ROUNDS = 20
PUTTERS = 160
COMPLETERS = 40
BUCKET = "crash"
LEAST_PART = 5 * 1024 * 1024
# Stands for the digest of a key without an object.
ABSENT = b""


@dataclass
class Ledger:
    """The possible contents of each key: one after an acknowledged write, several while a write is unanswered.

    Every key has one writer at a time. `enough` is set when it is time to kill the yard.
    """

    may_hold: dict[str, set[bytes]] = field(default_factory=dict)
    enough: threading.Event = field(default_factory=threading.Event)
    _missing: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, acknowledgements: int) -> None:
        self._missing = acknowledgements
        self.enough.clear()

    def send(self, key: str, body: bytes) -> None:
        with self._lock:
            self.may_hold.setdefault(key, {ABSENT}).add(digest(body))

    def acknowledge(self, key: str, body: bytes) -> None:
        with self._lock:
            self.may_hold[key] = {digest(body)}
            self._missing -= 1
            if self._missing == 0:
                self.enough.set()


@pytest.mark.slow
def test_acknowledged_objects_are_complete_after_a_crash_and_none_is_torn(tmp_path: Path) -> None:
    home, dice, ledger = tmp_path / "yard", random.Random(9), Ledger()
    for number in range(ROUNDS):
        with running_yard(home) as yard:
            s3 = _client(yard)
            if number == 0:
                s3.create_bucket(Bucket=BUCKET)
            _check(s3, ledger)
            ledger.expect(dice.randint(20, 400))
            _write_until_killed(yard, s3, ledger, number=number)
    with running_yard(home) as yard:
        _check(_client(yard), ledger)
    with closing(FilesystemObjects(yard.home.objects)) as objects:
        assert objects.verify(deep=True) == []


def _client(yard: RunningYard) -> Any:
    known = yard.credentials
    return boto3.client(
        "s3",
        endpoint_url=yard.http,
        aws_access_key_id=known.access_key_id,
        aws_secret_access_key=known.secret_access_key,
        region_name=known.region,
        config=Config(max_pool_connections=PUTTERS + COMPLETERS, retries={"total_max_attempts": 1}),
    )


def _write_until_killed(yard: RunningYard, s3: Any, ledger: Ledger, *, number: int) -> None:
    uploads = [_begin_upload(s3, f"joined/{number}/{each}", size) for each, size in enumerate(_upload_sizes())]
    started = threading.Barrier(PUTTERS + COMPLETERS + 1, timeout=60)
    # A quarter of the keys are from earlier rounds, and are overwritten.
    keys = [f"put/{number if each % 4 else 'again'}/{each}" for each in range(PUTTERS)]
    with ThreadPoolExecutor(PUTTERS + COMPLETERS) as threads:
        writing = [threads.submit(_put_until_refused, s3, key, ledger, started) for key in keys]
        writing += [threads.submit(_complete, s3, *upload, ledger, started) for upload in uploads]
        started.wait()
        is_time = ledger.enough.wait(timeout=120)
        yard.kill()
    assert is_time, "too few writes were acknowledged"
    for each in writing:
        each.result()


def _upload_sizes() -> Iterator[list[int]]:
    for each in range(COMPLETERS):
        yield [LEAST_PART, 70_000] if each % 4 == 0 else [20_000]


def _begin_upload(s3: Any, key: str, sizes: list[int]) -> tuple[str, str, list[bytes]]:
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    parts = [os.urandom(size) for size in sizes]
    for number, part in enumerate(parts, start=1):
        s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=number, Body=part)
    return key, upload, parts


def _put_until_refused(s3: Any, key: str, ledger: Ledger, started: threading.Barrier) -> None:
    dice = random.Random(key)
    started.wait()
    while True:
        body = os.urandom(dice.choice([0, 100, 20_000, 300_000]))
        ledger.send(key, body)
        try:
            s3.put_object(Bucket=BUCKET, Key=key, Body=body)
        except (BotoCoreError, ClientError):
            return
        ledger.acknowledge(key, body)


def _complete(s3: Any, key: str, upload: str, parts: list[bytes], ledger: Ledger, started: threading.Barrier) -> None:
    listed = s3.list_parts(Bucket=BUCKET, Key=key, UploadId=upload)["Parts"]
    named = [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in listed]
    body = b"".join(parts)
    ledger.send(key, body)
    started.wait()
    try:
        s3.complete_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload, MultipartUpload={"Parts": named})
    except (BotoCoreError, ClientError):
        return
    ledger.acknowledge(key, body)


def _check(s3: Any, ledger: Ledger) -> None:
    """Check that every key holds one of its possible contents."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = {each["Key"]: each["Size"] for page in pages for each in page.get("Contents", [])}
    with ThreadPoolExecutor(8) as threads:
        bodies = dict(zip(listed, threads.map(lambda key: _body(s3, key), listed), strict=True))
    assert {key: len(body) for key, body in bodies.items()} == listed
    held = dict.fromkeys(ledger.may_hold, ABSENT) | {key: digest(body) for key, body in bodies.items()}
    assert set(held) == set(ledger.may_hold), "there are objects that no client sent"
    wrong = [key for key, value in held.items() if value not in ledger.may_hold[key]]
    lost = [key for key in wrong if held[key] == ABSENT]
    assert not lost, f"acknowledged but lost: {lost[:5]}"
    assert not wrong, f"torn, or older than the acknowledged version: {wrong[:5]}"


def _body(s3: Any, key: str) -> bytes:
    body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    assert isinstance(body, bytes)
    return body


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
