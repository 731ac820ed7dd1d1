"""A bucket through obstore, an S3 client in Rust that shares no code with botocore."""

import os
import ssl
import urllib.request
import uuid
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store


def main() -> None:
    # obstore cannot create a bucket, but it can presign the request that does.
    bucket = f"obstore-{uuid.uuid4().hex[:12]}"
    store = S3Store(bucket)
    make_bucket(store)
    whole_and_ranges(store)
    parts(store)
    listings(store)
    conditions(store)
    store.delete([meta["path"] for page in store.list() for meta in page])
    assert [meta for page in store.list() for meta in page] == []


def make_bucket(store: S3Store) -> None:
    link = obstore.sign(store, "PUT", "", timedelta(minutes=1))
    trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
    with urllib.request.urlopen(urllib.request.Request(link, method="PUT"), context=trust) as answer:
        assert answer.status == 200


def whole_and_ranges(store: S3Store) -> None:
    body = os.urandom(300_000)
    store.put("folder/a.bin", body, attributes={"Content-Type": "text/x-test", "colour": "red"})
    got = store.get("folder/a.bin")
    assert bytes(got.bytes()) == body
    assert got.attributes["Content-Type"] == "text/x-test"
    assert got.attributes["colour"] == "red"
    assert bytes(store.get_range("folder/a.bin", start=100, length=50)) == body[100:150]
    pieces = store.get_ranges("folder/a.bin", starts=[0, 200_000], lengths=[10, 20])
    assert [bytes(piece) for piece in pieces] == [body[:10], body[200_000:200_020]]
    assert store.head("folder/a.bin")["size"] == len(body)


def parts(store: S3Store) -> None:
    body = os.urandom(17 * 1024 * 1024)
    store.put("large", body, chunk_size=5 * 1024 * 1024, use_multipart=True)
    assert bytes(store.get("large").bytes()) == body
    store.copy("large", "copy")
    assert store.head("copy")["size"] == len(body)
    store.rename("copy", "renamed")
    assert bytes(store.get_range("renamed", start=0, length=10)) == body[:10]


def listings(store: S3Store) -> None:
    for number in range(30):
        store.put(f"many/{number:02}/x y+z", b".")
    paths = [meta["path"] for page in store.list("many", chunk_size=7) for meta in page]
    assert paths == [f"many/{number:02}/x y+z" for number in range(30)]
    result = store.list_with_delimiter("many")
    assert result["common_prefixes"] == [f"many/{number:02}" for number in range(30)]


def conditions(store: S3Store) -> None:
    store.put("once", b"first", mode="create")
    try:
        store.put("once", b"second", mode="create")
    except AlreadyExistsError:
        assert bytes(store.get("once").bytes()) == b"first"
        return
    raise AssertionError("an object was created twice")


main()
