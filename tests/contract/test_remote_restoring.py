"""Checkpoints in a remote S3 as files of an instance, while others write there too."""

from itertools import count, repeat
from pathlib import Path

import pytest

from tests.faulty_s3 import BreakOff, FaultyS3, First, Refuse, Wait
from trainyard.foundation.clock import to_micros, utc_now
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.sync.restore import RestoredFile, restore_folder
from trainyard.instance.agent.layout import ProgramUser
from trainyard.objects.contract import Attributes
from trainyard.objects.remote import RemoteObjects
from trainyard.objects.remote.downloads import RANGE_BYTES

BUCKET = BucketRef("111122223333", "data")
LOCATION = Location(BUCKET, "ck/")
LARGE = 2 * RANGE_BYTES + 4321


@pytest.fixture
def store(faulty_store: RemoteObjects) -> RemoteObjects:
    faulty_store.create_bucket(BUCKET, region="us-east-1", now=utc_now())
    return faulty_store


def put(store: RemoteObjects, key: str, body: bytes, *, instance: str = "algo-1") -> None:
    writer = store.writer(Location(BUCKET, key), Attributes(metadata={"trainyard-instance": instance}))
    writer.write(body)
    writer.commit(now=utc_now())


def restored(store: RemoteObjects, folder: Path, *, skipped: list[str] | None = None) -> dict[str, RestoredFile]:
    told = [] if skipped is None else skipped
    folder.mkdir()
    with ConfinedFolder.open(folder) as opened:
        found = restore_folder(
            store, LOCATION, opened, owner=ProgramUser(None), check=lambda: None, on_skipped=told.append
        )
        return {each.path: each for each in found}


def test_all_objects_come_back_with_their_times_and_who_wrote_them(store: RemoteObjects, tmp_path: Path) -> None:
    bodies = {"ck/step": b"7", "ck/deep/er/weights.pt": b"w" * LARGE, "ck/empty": b"", "other/step": b"8"}
    for key, body in bodies.items():
        put(store, key, body, instance="algo-2")
    put(store, "ck/folder/", b"")
    found = restored(store, tmp_path / "ck")
    assert {path: (tmp_path / "ck" / path).read_bytes() for path in found} == {
        "step": b"7",
        "deep/er/weights.pt": b"w" * LARGE,
        "empty": b"",
    }
    assert (tmp_path / "ck" / "folder").is_dir()
    step = found["step"]
    assert step.info.attributes.metadata == {"trainyard-instance": "algo-2"}
    assert step.stamp.mtime_ns == to_micros(step.info.modified_at) * 1000 == (tmp_path / "ck/step").stat().st_mtime_ns


def test_keys_that_cannot_be_files_are_reported_and_the_rest_is_restored(store: RemoteObjects, tmp_path: Path) -> None:
    for key in ("ck/a", "ck/a/b", "ck/../c", "ck/d"):
        put(store, key, key.encode())
    skipped: list[str] = []
    assert sorted(restored(store, tmp_path / "ck", skipped=skipped)) == ["a", "d"]
    assert sorted(skipped) == ["ck/../c", "ck/a/b"]


def test_deleted_objects_are_skipped_and_replaced_ones_are_listed_as_they_are(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    for name in ("gone", "swapped", "stays"):
        put(store, f"ck/{name}", b"1" * LARGE)
    faulty.on("GET", "/ck/gone", [First(lambda: store.delete(Location(BUCKET, "ck/gone")))])
    faulty.on("GET", "/ck/swapped", [Wait(0), First(lambda: put(store, "ck/swapped", b"2" * LARGE))])
    faulty.on("GET", "/ck/stays", [BreakOff(), Refuse(503, "SlowDown")])
    assert sorted(restored(store, tmp_path / "ck")) == ["stays", "swapped"]
    assert (tmp_path / "ck" / "stays").read_bytes() == b"1" * LARGE
    assert (tmp_path / "ck" / "swapped").read_bytes() == b"2" * LARGE
    assert not (tmp_path / "ck" / "gone").exists()


def test_an_object_that_is_replaced_again_and_again_is_named_in_the_error(
    store: RemoteObjects, faulty: FaultyS3, tmp_path: Path
) -> None:
    put(store, "ck/busy", b"0")
    bodies = (b"%d" % number for number in count(1))
    faulty.on("GET", "/ck/busy", repeat(First(lambda: put(store, "ck/busy", next(bodies)))))
    with pytest.raises(Unavailable, match="s3://data/ck/busy was replaced while it was being read"):
        restored(store, tmp_path / "ck")
