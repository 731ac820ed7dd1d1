import os
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.home import Home
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.environments import EnvironmentCache
from trainyard.objects.contract import Attributes
from trainyard.objects.datafiles import hold_files
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.home import open_home
from trainyard.server.log_streams import STREAM
from trainyard.server.records.contract import AccessKey, Draft, Records, ResourceKey, User
from trainyard.server.records.sql import open_records
from trainyard.server.upkeep.garbage import Garbage, sweep

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUCKET = BucketRef("123456789012", "data")

DELETED = "data files of deleted objects"
STRAY = "data files without an object"
INTERRUPTED = "uploads interrupted by a crash"
LOGS = "deleted log streams"
METRICS = "deleted metrics"
JOBS = "deleted jobs"
KEYS = "expired temporary keys"
CACHE = "cached service models of another version"
ENVIRONMENTS = "unused job environments"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = open_home(tmp_path / "home")
    with closing(FilesystemObjects(home.objects)) as objects:
        objects.create_bucket(BUCKET, region="us-east-1", now=NOW)
        put(objects, "kept", b"k" * 100)
    return home


@pytest.fixture
def records(home: Home) -> Iterator[Records]:
    with closing(open_records(f"sqlite:///{home.records_file}")) as records:
        user = User(BUCKET.account, "admin", "TrainyardRole", is_admin=True, created_at=NOW)
        records.add_user(user, AccessKey("AKIAEXAMPLE", "secret", user.account, NOW))
        yield records


def put(objects: FilesystemObjects, key: str, data: bytes) -> None:
    writer = objects.writer(Location(BUCKET, key), Attributes())
    writer.write(data)
    writer.commit(now=NOW)


def swept(home: Home, records: Records, *, dry_run: bool = False) -> dict[str, Garbage]:
    found = sweep(home, records, has_local_objects=True, now=NOW, dry_run=dry_run)
    return {garbage.what: garbage for garbage in found}


def test_a_clean_home_has_no_garbage(home: Home, records: Records) -> None:
    assert {garbage.count for garbage in swept(home, records).values()} == {0}


def test_files_that_a_backup_protected_are_removed_afterwards(home: Home, records: Records) -> None:
    with closing(FilesystemObjects(home.objects)) as objects:
        put(objects, "gone", b"g" * 1000)
        with hold_files(home.objects):
            objects.delete(Location(BUCKET, "gone"))

    assert swept(home, records, dry_run=True)[DELETED] == Garbage(DELETED, 1, 1000)
    assert swept(home, records)[DELETED] == Garbage(DELETED, 1, 1000)
    assert swept(home, records)[DELETED].count == 0


def test_an_unreferenced_data_file_is_removed_once_it_is_old(home: Home, records: Records) -> None:
    stray = home.objects / "data" / "ff" / "00000000000000000000ff"
    stray.write_bytes(b"s" * 10)
    assert swept(home, records)[STRAY].count == 0
    os.utime(stray, (0, 0))

    assert swept(home, records, dry_run=True)[STRAY] == Garbage(STRAY, 1, 10)
    assert stray.exists()
    assert swept(home, records)[STRAY] == Garbage(STRAY, 1, 10)
    assert not stray.exists()


def test_an_interrupted_upload_is_removed_while_no_yard_runs(home: Home, records: Records) -> None:
    left = home.objects / "incoming" / "0123"
    left.write_bytes(b"i" * 20)

    assert swept(home, records, dry_run=True)[INTERRUPTED] == Garbage(INTERRUPTED, 1, 20)
    assert left.exists()
    assert swept(home, records)[INTERRUPTED].count == 1
    assert not left.exists()


def test_an_upload_beside_a_running_yard_is_left_alone(home: Home, records: Records) -> None:
    with closing(FilesystemObjects(home.objects)) as objects:
        writer = objects.writer(Location(BUCKET, "coming"), Attributes())
        writer.write(b"half")
        assert swept(home, records)[INTERRUPTED].count == 0
        writer.commit(now=NOW)
        with objects.open(Location(BUCKET, "coming")) as reader:
            assert reader.read(0, 4) == b"half"


def test_objects_that_exist_survive_every_sweep(home: Home, records: Records) -> None:
    for path in (home.objects / "data").rglob("*"):
        os.utime(path, (0, 0))

    swept(home, records)

    with closing(FilesystemObjects(home.objects)) as objects:
        assert objects.verify(deep=True) == []
        assert objects.info(Location(BUCKET, "kept")).size == 100


def test_nothing_is_removed_from_a_store_without_its_index(home: Home, records: Records) -> None:
    for path in (home.objects / "data").rglob("*"):
        os.utime(path, (0, 0))
    for path in home.objects.glob("index.sqlite*"):
        path.unlink()

    with pytest.raises(Corrupt, match="lost its index"):
        swept(home, records)
    assert [path for path in (home.objects / "data").rglob("*") if path.is_file()]


def test_the_folder_of_a_deleted_log_stream_is_removed_and_others_stay(home: Home, records: Records) -> None:
    living = records.create(Draft(ResourceKey(BUCKET.account, STREAM, "a"), "us-east-1", {}), now=NOW)
    for name in (living.id, "deleted-stream"):
        (home.logs / name).mkdir()
        (home.logs / name / "00000000000000000000.log").write_bytes(b"12345")

    assert swept(home, records, dry_run=True)[LOGS] == Garbage(LOGS, 1, 5)
    assert swept(home, records)[LOGS] == Garbage(LOGS, 1, 5)
    assert [path.name for path in home.logs.iterdir()] == [living.id]


def test_the_points_of_a_deleted_metric_are_removed_and_others_stay(home: Home, records: Records) -> None:
    living = records.create(Draft(ResourceKey(BUCKET.account, "metric", "a"), "us-east-1", {}), now=NOW)
    for name in (living.id, "deleted-metric"):
        (home.metrics / name).mkdir()
        (home.metrics / name / "None.points").write_bytes(b"1234567")

    assert swept(home, records)[METRICS] == Garbage(METRICS, 1, 7)
    assert [path.name for path in home.metrics.iterdir()] == [living.id]


def test_keys_that_expired_days_ago_are_deleted(home: Home, records: Records) -> None:
    for number, age in enumerate((timedelta(days=2), timedelta(hours=1), timedelta(days=-1))):
        key = AccessKey(f"ASIA{number}", "secret", BUCKET.account, NOW, session_token="t", expires_at=NOW - age)
        records.add_access_key(key)

    assert swept(home, records, dry_run=True)[KEYS].count == 1
    assert swept(home, records)[KEYS].count == 1
    assert swept(home, records)[KEYS].count == 0


def test_cached_models_of_another_botocore_are_removed(home: Home, records: Records) -> None:
    import botocore

    current = home.cache / f"s3-{botocore.__version__}.json"
    for path in (current, home.cache / "s3-1.2.3.json", home.cache / ".s3-half"):
        path.write_text("{}")

    assert swept(home, records, dry_run=True)[CACHE] == Garbage(CACHE, 2, 4)
    swept(home, records)
    assert list(home.cache.iterdir()) == [current]


def test_the_folder_of_a_deleted_job_is_removed_and_others_stay(home: Home, records: Records) -> None:
    living = records.create(Draft(ResourceKey(BUCKET.account, "training-job", "a"), "us-east-1", {}), now=NOW)
    for name in (living.id, "deleted-job"):
        (home.jobs / name / "1" / "algo-1").mkdir(parents=True)
        (home.jobs / name / "1" / "algo-1" / "spool").write_bytes(b"123")

    assert swept(home, records)[JOBS] == Garbage(JOBS, 1, 3)
    assert [path.name for path in home.jobs.iterdir()] == [living.id]


def test_whatever_a_deleted_job_left_is_measured_and_removed_but_nothing_it_links_to(
    home: Home, records: Records, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_bytes(b"x" * 1000)
    ml = home.jobs / "deleted-job" / "1" / "algo-1" / "ml"
    ml.mkdir(parents=True)
    (ml / "led").symlink_to(tmp_path / "outside")
    (ml / "file").symlink_to(tmp_path / "outside" / "kept")
    descriptor = os.open(ml, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=descriptor)
        inner = os.open("deep", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)

    try:
        assert swept(home, records)[JOBS] == Garbage(JOBS, 1, 0)
        assert list(home.jobs.iterdir()) == []
    finally:
        remove_tree(home.jobs)
    assert (tmp_path / "outside" / "kept").read_bytes() == b"x" * 1000


def test_long_unused_environments_are_removed_and_others_stay(home: Home, records: Records) -> None:
    kept = EnvironmentCache(home.environments / "111122223333")
    for key, age_s in (("old", 40 * 86400), ("new", 0)):
        making = kept.begin_build(key)
        assert making is not None
        with making:
            (making.folder / "module.py").write_bytes(b"12345")
            making.commit()
        used_at = time.time() - age_s
        os.utime(home.environments / "111122223333" / f"{key}.lock", (used_at, used_at))
    assert swept(home, records, dry_run=True)[ENVIRONMENTS] == Garbage(ENVIRONMENTS, 1, 5)
    assert swept(home, records)[ENVIRONMENTS] == Garbage(ENVIRONMENTS, 1, 5)
    assert [each.key for each in kept.entries()] == ["new"]


def test_an_environment_that_a_job_uses_is_never_removed(home: Home, records: Records) -> None:
    kept = EnvironmentCache(home.environments / "111122223333")
    making = kept.begin_build("old")
    assert making is not None
    with making:
        making.commit()
    used = kept.use("old")
    assert used is not None
    os.utime(home.environments / "111122223333" / "old.lock", (0, 0))
    with used:
        assert {garbage.count for garbage in swept(home, records).values()} == {0}
        assert used.folder.is_dir()
