"""Writes objects until it is killed, and reports on stdout what it starts and what is acknowledged.

Run as a program: `crash_writer.py ROOT`. Each thread has a key of its own and goes through its versions; a line is
`begin KEY VERSION` or `done KEY VERSION`, and version n of a key is `body_of(key, n)`, None for a deleted object.
"""

import os
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from threading import Thread

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart, NewObject, WriteResult
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.objects.samples import ALICE, NOON, PART, put, put_part

BUCKET = BucketRef(ALICE, "crash")
THREADS = 4
KINDS = ("put", "replace", "together", "upload", "copy", "delete")
# Suffix of the second key of a batch.
TWIN = " twin"


def body_of(key: str, version: int) -> bytes | None:
    kind = KINDS[version % len(KINDS)]
    if kind == "delete":
        return None
    if kind == "copy":
        return body_of(key, version - 1)
    line = f"{key} {version};".encode()
    return line * (PART // len(line) + 10 if kind == "upload" else 100 + version)


def write(store: FilesystemObjects, key: str, version: int) -> None:
    where = Location(BUCKET, key)
    body = body_of(key, version)
    kind = KINDS[version % len(KINDS)]
    if body is None:
        store.delete(where)
    elif kind == "copy":
        store.copy(where, where, now=NOON, attributes=Attributes(metadata={"version": str(version)}))
    elif kind == "upload":
        upload = store.create_upload(where, Attributes(), now=NOON)
        pieces = [body[:PART], body[PART:]]
        named = [
            CompletedPart(number, put_part(store, upload, number, body=piece).etag)
            for number, piece in enumerate(pieces, 1)
        ]
        store.complete_upload(where, upload.id, named, now=NOON)
    elif kind == "together":
        put_batch(store, {key: body, key + TWIN: body})
    else:
        put(store, where, body)


def put_batch(store: FilesystemObjects, bodies: Mapping[str, bytes]) -> None:
    new = [NewObject(Location(BUCKET, key), body, Attributes()) for key, body in bodies.items()]
    assert all(isinstance(outcome, WriteResult) for outcome in store.put_batch(new, now=NOON))


def run(store: FilesystemObjects, key: str, first: int) -> None:
    for version in count(first):
        os.write(1, f"begin {key} {version}\n".encode())
        write(store, key, version)
        os.write(1, f"done {key} {version}\n".encode())


if __name__ == "__main__":
    opened = FilesystemObjects(Path(sys.argv[1]))
    # A later round starts at the next cycle of kinds for every key.
    begin = int(sys.argv[2]) * len(KINDS)
    for thread in [Thread(target=run, args=(opened, f"key-{n}", begin)) for n in range(THREADS)]:
        thread.start()
