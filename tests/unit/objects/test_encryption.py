"""Encrypted objects of a folder store: what lies on the disk, which key they use, and what happens without it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes, CompletedPart
from trainyard.objects.encryption.headers import ALGORITHM, BUCKET_KEY, KEY, Encryption
from trainyard.objects.encryption.keyring import DATABASE, Keyring
from trainyard.objects.encryption.keys import S3_ALIAS, EncryptionKey, KeyAlias, KeyDestroyed, KeyState, KeyUnusable
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.objects.samples import ALICE, BOB, NOON, PART, REGION, body_of, new_bucket, put, put_part

SECRET = b"the plans of the invasion " * 5000
KMS = Attributes({ALGORITHM: "aws:kms"})
S3 = Attributes({ALGORITHM: "AES256"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        yield opened


@pytest.fixture
def bucket(store: FilesystemObjects) -> BucketRef:
    return new_bucket(store)


def with_key(reference: str) -> Attributes:
    return Attributes({ALGORITHM: "aws:kms", KEY: reference})


def create_key(store: FilesystemObjects, account: str = ALICE) -> EncryptionKey:
    return store.keyring.create(account, region=REGION, now=NOON)


def disable(store: FilesystemObjects, key: EncryptionKey) -> None:
    store.keyring.change(key.account, key.id, lambda key: replace(key, state=KeyState.DISABLED))


def bytes_on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("asked", [KMS, S3], ids=["aws:kms", "AES256"])
def test_the_content_is_nowhere_on_the_disk(store: FilesystemObjects, bucket: BucketRef, asked: Attributes) -> None:
    put(store, Location(bucket, "k"), SECRET, attributes=asked)
    upload = store.create_upload(Location(bucket, "parts"), asked, now=NOON)
    parts = [put_part(store, upload, number, body=SECRET * 50) for number in (1, 2)]
    store.complete_upload(
        upload.where, upload.id, [CompletedPart(at, part.etag) for at, part in enumerate(parts, 1)], now=NOON
    )
    store.copy(Location(bucket, "k"), Location(bucket, "copy"), now=NOON)
    assert b"invasion" not in bytes_on_disk(store.keyring.folder.parent)
    put(store, Location(bucket, "plain"), SECRET)
    assert b"invasion" in bytes_on_disk(store.keyring.folder.parent)


def test_without_a_named_key_the_key_of_s3_is_created_once(store: FilesystemObjects, bucket: BucketRef) -> None:
    written = [put(store, Location(bucket, name), SECRET, attributes=KMS) for name in "ab"]
    [key] = store.keyring.keys(ALICE, limit=10)
    assert store.keyring.alias(ALICE, S3_ALIAS).key_id == key.id
    assert [each.encryption for each in written] == [{ALGORITHM: "aws:kms", KEY: key.arn}] * 2
    assert store.info(Location(bucket, "a")).attributes.headers[KEY] == key.arn
    assert key.arn.startswith(f"arn:aws:kms:{REGION}:{ALICE}:key/")


def test_the_key_of_plain_s3_encryption_is_not_listed(store: FilesystemObjects, bucket: BucketRef) -> None:
    assert put(store, Location(bucket, "k"), SECRET, attributes=S3).encryption == {ALGORITHM: "AES256"}
    assert store.keyring.keys(ALICE, limit=10) == []


def test_a_key_may_be_named_in_every_form(store: FilesystemObjects, bucket: BucketRef) -> None:
    key, where = create_key(store), Location(bucket, "k")
    for reference in (key.id, key.arn):
        assert put(store, where, SECRET, attributes=with_key(reference)).encryption[KEY] == key.arn


def test_the_key_of_another_account_is_not_found(store: FilesystemObjects, bucket: BucketRef) -> None:
    key = create_key(store, BOB)
    for reference in (key.id, key.arn, "alias/unknown", "11111111-2222-3333-4444-555555555555"):
        with pytest.raises(NotFound):
            put(store, Location(bucket, "k"), SECRET, attributes=with_key(reference))
    assert store.list_objects(bucket).objects == []


def test_a_disabled_key_neither_writes_nor_reads(store: FilesystemObjects, bucket: BucketRef) -> None:
    key, where = create_key(store), Location(bucket, "k")
    put(store, where, SECRET, attributes=with_key(key.arn))
    disable(store, key)
    with pytest.raises(KeyUnusable, match=r"is disabled\.$"):
        store.open(where)
    with pytest.raises(KeyUnusable):
        put(store, where, b"new", attributes=with_key(key.arn))
    # What needs no key still works.
    assert store.info(where).size == len(SECRET)
    assert store.verify(deep=True) == []
    with pytest.raises(KeyUnusable):
        store.copy(where, Location(bucket, "copy"), now=NOON)
    store.keyring.change(ALICE, key.id, lambda key: replace(key, state=KeyState.ENABLED))
    assert body_of(store, where) == SECRET
    disable(store, key)
    assert store.delete(where)


def test_another_process_notices_at_once_that_a_key_is_disabled(
    store: FilesystemObjects, bucket: BucketRef, tmp_path: Path
) -> None:
    key, where = create_key(store), Location(bucket, "k")
    put(store, where, SECRET, attributes=with_key(key.arn))
    with closing(FilesystemObjects(tmp_path / "objects")) as agent:
        assert body_of(agent, where) == SECRET
        disable(store, key)
        with pytest.raises(KeyUnusable):
            agent.open(where)


def test_a_destroyed_key_makes_its_objects_unreadable(store: FilesystemObjects, bucket: BucketRef) -> None:
    key, where = create_key(store), Location(bucket, "k")
    put(store, where, SECRET, attributes=with_key(key.arn))
    due = NOON + timedelta(days=7)
    store.keyring.change(ALICE, key.id, lambda key: replace(key, state=KeyState.PENDING_DELETION, deletion_at=due))
    assert store.keyring.destroy_due(now=NOON) == 0
    with pytest.raises(KeyUnusable, match="is pending deletion"):
        store.open(where)
    assert store.keyring.destroy_due(now=due) == 1
    with pytest.raises(KeyDestroyed):
        store.open(where)


def test_nothing_of_a_destroyed_key_is_left_on_the_disk(store: FilesystemObjects) -> None:
    key, kept = create_key(store), create_key(store)
    database = store.keyring.folder / DATABASE
    with closing(sqlite3.connect(database)) as connection:
        [material] = connection.execute("SELECT material FROM key WHERE id = ?", (key.id,)).fetchone()
    store.keyring.add_alias(KeyAlias(ALICE, "alias/mine", key.id, REGION, NOON, NOON))
    store.keyring.change(
        ALICE,
        key.id,
        lambda key: replace(key, state=KeyState.PENDING_DELETION, deletion_at=NOON, description="long" * 99),
    )
    assert material.encode() in bytes_on_disk(database.parent)
    assert store.keyring.destroy_due(now=NOON) == 1
    found = bytes_on_disk(database.parent)
    assert (material.encode() in found, key.id.encode() in found) == (False, False)
    assert store.keyring.find(ALICE, kept.id).state is KeyState.ENABLED


def test_a_bucket_encrypts_what_asks_for_nothing(store: FilesystemObjects, bucket: BucketRef) -> None:
    key, where = create_key(store), Location(bucket, "k")
    encryption = Encryption("aws:kms", key.arn, has_bucket_key=True)
    store.encrypt_bucket(bucket, encryption)
    assert store.bucket_encryption(bucket) == encryption
    expected = {ALGORITHM: "aws:kms", KEY: key.arn, BUCKET_KEY: "true"}
    assert put(store, where, SECRET).encryption == expected
    upload = store.create_upload(where, Attributes(), now=NOON)
    assert upload.attributes.headers == expected
    assert put(store, where, SECRET, attributes=S3).encryption == {ALGORITHM: "AES256"}
    store.encrypt_bucket(bucket, None)
    assert put(store, where, SECRET).encryption == {}
    # The upload began before.
    assert put_part(store, upload, 1, body=SECRET).encryption == expected


def test_the_encryption_of_a_deleted_bucket_is_forgotten(store: FilesystemObjects) -> None:
    ref = BucketRef(ALICE, "again")
    store.create_bucket(ref, region=REGION, now=NOON)
    store.encrypt_bucket(ref, Encryption("AES256"))
    store.delete_bucket(ref)
    store.create_bucket(ref, region=REGION, now=NOON)
    assert store.bucket_encryption(ref) is None


def test_an_unknown_encryption_is_refused(store: FilesystemObjects, bucket: BucketRef) -> None:
    with pytest.raises(InvalidRequest, match="rot13"):
        put(store, Location(bucket, "k"), SECRET, attributes=Attributes({ALGORITHM: "rot13"}))


@pytest.mark.parametrize("at", [0, 30, 100, 70_000, -1])
def test_changed_bytes_are_never_returned(store: FilesystemObjects, bucket: BucketRef, at: int) -> None:
    where = Location(bucket, "k")
    put(store, where, SECRET, attributes=S3)
    [file] = [path for path in (Path(store.files_folder)).rglob("*") if path.is_file()]
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises((Corrupt, KeyDestroyed)):
        body_of(store, where)


def test_a_chunk_in_the_place_of_another_is_noticed(store: FilesystemObjects, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    put(store, where, SECRET, attributes=S3)
    [file] = [path for path in (Path(store.files_folder)).rglob("*") if path.is_file()]
    content, header, chunk = file.read_bytes(), 80, (64 << 10) + 16
    first, second = content[header : header + chunk], content[header + chunk : header + 2 * chunk]
    file.write_bytes(content[:header] + second[: len(first)] + first + content[header + 2 * chunk :])
    with pytest.raises(Corrupt):
        body_of(store, where)


def test_the_master_key_is_private_and_only_made_when_needed(store: FilesystemObjects, bucket: BucketRef) -> None:
    put(store, Location(bucket, "plain"), SECRET)
    assert not store.keyring.folder.exists()
    put(store, Location(bucket, "k"), SECRET, attributes=S3)
    assert store.keyring.master_key_file.stat().st_mode & 0o777 == 0o600
    assert store.keyring.folder.stat().st_mode & 0o777 == 0o700


def test_a_missing_or_foreign_master_key_is_named_and_never_replaced(
    store: FilesystemObjects, bucket: BucketRef, tmp_path: Path
) -> None:
    where = Location(bucket, "k")
    put(store, where, SECRET, attributes=S3)
    kept = store.keyring.master_key_file.rename(tmp_path / "kept")
    assert body_of(store, where) == SECRET, "an open store has it in memory"
    with closing(FilesystemObjects(tmp_path / "objects")) as reopened:
        for work in (lambda: body_of(reopened, where), lambda: put(reopened, where, b"x", attributes=KMS)):
            with pytest.raises(Unavailable, match=r"master key .* is missing"):
                work()
        assert not reopened.keyring.master_key_file.exists()
        reopened.keyring.master_key_file.write_text(os.urandom(32).hex())
        with pytest.raises(Corrupt, match="is not the master key"):
            body_of(reopened, where)
    with closing(FilesystemObjects(tmp_path / "objects", master_key_file=kept)) as reopened:
        assert body_of(reopened, where) == SECRET


def test_an_older_release_does_not_open_a_store_with_encrypted_objects(
    store: FilesystemObjects, bucket: BucketRef, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from trainyard.objects import index

    put(store, Location(bucket, "plain"), SECRET)
    monkeypatch.setattr(index, "VERSION", 1)
    with closing(FilesystemObjects(tmp_path / "objects")):
        pass
    put(store, Location(bucket, "k"), SECRET, attributes=S3)
    with pytest.raises(InvalidRequest, match="newer Trainyard"):
        FilesystemObjects(tmp_path / "objects")


def test_a_wrapped_text_needs_its_context(tmp_path: Path) -> None:
    from trainyard.objects.encryption.cipher import WrongKey

    with closing(Keyring(tmp_path / "keys")) as keyring:
        key = keyring.create(ALICE, region=REGION, now=NOON)
        wrapped = keyring.wrap(key.id, b"text", context=b"job")
        assert keyring.unwrap(key.id, wrapped, context=b"job") == b"text"
        for changed in (wrapped[:-1], b"", wrapped[:-1] + bytes([wrapped[-1] ^ 1])):
            with pytest.raises(WrongKey):
                keyring.unwrap(key.id, changed, context=b"job")
        with pytest.raises(WrongKey):
            keyring.unwrap(key.id, wrapped, context=b"other")


def test_a_small_range_is_read_at_once_if_it_is_in_memory(store: FilesystemObjects, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    put(store, where, SECRET, attributes=KMS)
    with store.open(where) as reader:
        # Nothing can tell on a file system without RWF_NOWAIT.
        assert reader.read_now(65_530, 12) in (None, SECRET[65_530:65_542])
        assert reader.read_now(0, len(SECRET)) is None


def test_an_object_of_many_parts_reads_across_them(store: FilesystemObjects, bucket: BucketRef) -> None:
    where = Location(bucket, "k")
    upload = store.create_upload(where, KMS, now=NOON)
    bodies = [bytes([number]) * PART for number in range(4)]
    parts = [CompletedPart(at, put_part(store, upload, at, body=body).etag) for at, body in enumerate(bodies, 1)]
    store.complete_upload(where, upload.id, parts, now=NOON)
    with store.open(where) as reader:
        whole = b"".join(bodies)
        for offset in (0, PART - 1, PART, 2 * PART + 70_000, 4 * PART - 1):
            assert reader.read(offset, PART + 3) == whole[offset : offset + PART + 3]
