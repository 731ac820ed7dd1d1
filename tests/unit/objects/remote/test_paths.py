from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Checksum, ChecksumAlgorithm, ObjectPart
from trainyard.objects.listing import key_beyond
from trainyard.objects.remote.paths import (
    KeyFolder,
    PartName,
    RemoteLayout,
    decode_key,
    encode_key,
    key_hash,
    read_part_name,
)
from trainyard.testing.objects.samples import ALICE, ODD_KEYS

KEYS = st.text(st.sampled_from("ab0/. !~-@_\x00\n\x7fé\ufffd\ufffe\uffff😀\U0010ffff"), min_size=1, max_size=8)
TEXTS = st.one_of(KEYS, st.text(min_size=1, max_size=8), st.sampled_from(ODD_KEYS))


@pytest.mark.parametrize("key", ["a", "train/images/0001.jpg", "a.b/c..d", "Großes/é/日本語", "x=1&y=2+z", "a\\b:c*?"])
def test_an_ordinary_key_is_its_own_path(key: str) -> None:
    assert encode_key(key) == key


@given(TEXTS)
def test_a_key_is_read_back_from_its_path(key: str) -> None:
    assert decode_key(encode_key(key)) == key


@given(TEXTS)
def test_every_path_is_one_that_obstore_takes(key: str) -> None:
    path = encode_key(key)
    segments = path.split("/")
    assert "" not in segments
    assert "." not in segments
    assert ".." not in segments
    assert all(char >= " " and char != "\x7f" for char in path)


@given(TEXTS, TEXTS)
@example("a/", "a/\x00")
@example("a/", "a//")
@example("a/.", "a/-")
@example("~", "\x7f")
def test_paths_are_in_the_order_of_their_keys(one: str, other: str) -> None:
    assume(one != other)
    assert (encode_key(one).encode() < encode_key(other).encode()) == (one.encode() < other.encode())


@given(TEXTS, TEXTS)
def test_a_seek_misses_no_key_from_its_start_on(key: str, start: str) -> None:
    folder = KeyFolder("folder")
    for beginning in (start.encode(), start.encode() + b"\0", key_beyond(start.encode())):
        if key.encode() >= beginning:
            assert folder.path(key).encode() > folder.path_before(beginning).encode()


def test_a_seek_leaves_out_the_keys_before_its_start() -> None:
    folder = KeyFolder("folder")
    for key, start in [
        ("train/8", b"train/9"),
        ("a/zzz", key_beyond(b"a/")),
        ("é/ÿ", key_beyond("é/".encode())),
        ("a", b"a\0"),
    ]:
        assert folder.path(key).encode() <= folder.path_before(start).encode()


@pytest.mark.parametrize("key", ["k" * 1024, "é" * 512, "/" * 1024, "\n" * 1024, "~" * 1000, "😀" * 256])
def test_a_key_of_any_length_has_a_path_that_s3_takes(key: str) -> None:
    folder = KeyFolder("some/prefix/" + "b" * 63)
    path = folder.path(key)
    assert len(path.encode()) <= 1024
    assert folder.is_shortened(folder.name(path))
    assert path.endswith(key_hash(key))
    assert folder.path(key + "x") != path


@given(st.text("aé😀/", min_size=300, max_size=320), st.text("aé😀/", min_size=300, max_size=320))
def test_shortened_names_are_out_of_order_only_within_a_stem(one: str, other: str) -> None:
    folder = KeyFolder("f" * 700)
    names = [folder.name(folder.path(key)) for key in (one, other)]
    stems = [folder.stem(name) for name in names]
    assume(stems[0] != stems[1])
    assert (names[0].encode() < names[1].encode()) == (one.encode() < other.encode())


def test_all_paths_are_below_the_prefix_and_distinct() -> None:
    layout = RemoteLayout("/team/yard/")
    ref = BucketRef(ALICE, "data")
    part = PartName(7, ObjectPart(1, 2, "etag", datetime(2026, 1, 1, tzinfo=UTC)))
    paths = [
        layout.object(Location(ref, "a/b")),
        layout.bucket_record(ref),
        layout.description(ref, "hash", "id"),
        layout.upload(ref, "id"),
        layout.part("id", part),
    ]
    assert paths[0] == f"team/yard/{ALICE}/data/a/b"
    assert len(set(paths)) == len(paths)
    assert all(PurePosixPath("team/yard") in PurePosixPath(path).parents for path in paths)
    assert RemoteLayout("").object(Location(ref, "k")) == f"{ALICE}/data/k"


@pytest.mark.parametrize("checksum", [None, Checksum(ChecksumAlgorithm.SHA256, "a+/b==")])
def test_a_part_is_read_back_from_its_name(checksum: Checksum | None) -> None:
    part = ObjectPart(42, 5 << 30, "0123abcd", datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), checksum)
    name = PartName(1 << 60, part)
    assert read_part_name(str(name)) == name
    assert encode_key(str(name)) == str(name)
