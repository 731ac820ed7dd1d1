import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder
from trainyard import __version__
from trainyard.foundation.errors import AlreadyExists, Conflict, Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.home import FORMAT, Credentials, Home, HomeVersion
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes
from trainyard.objects.encryption.headers import ALGORITHM
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.home import open_home
from trainyard.server.records.contract import AccessKey, Draft, ResourceKey, User
from trainyard.server.records.sql import open_records
from trainyard.server.settings import ServerSettings
from trainyard.server.upkeep.backup import BackupSummary, back_up, restore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUCKET = BucketRef("123456789012", "data")
CREDENTIALS = Credentials("123456789012", "admin", "TrainyardRole", "AKIAEXAMPLE", "secret", "us-east-1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that a yard has used."""
    home = open_home(tmp_path / "home")
    home.write_credentials(CREDENTIALS)
    home.settings_file.write_text("port = 5000\n")
    home.engines_file.write_text('[[rules]]\nengine = "local"\n')
    with closing(open_records(f"sqlite:///{home.records_file}")) as records:
        user = User(CREDENTIALS.account, "admin", "TrainyardRole", is_admin=True, created_at=NOW)
        records.add_user(user, AccessKey("AKIAEXAMPLE", "secret", user.account, NOW))
        key = ResourceKey(user.account, "role", "TrainyardRole")
        records.create(Draft(key, "us-east-1", {"path": "/"}), now=NOW)
    with closing(FilesystemObjects(home.objects)) as objects:
        objects.create_bucket(BUCKET, region="us-east-1", now=NOW)
        for number in range(5):
            put(objects, f"key/{number}", bytes([number]) * number * 1000)
    stream = home.logs / "stream-1"
    stream.mkdir()
    (stream / "00000000000000000000.log").write_bytes(b"line\n")
    (home.metrics / "points").write_bytes(b"\0" * 56)
    instance = home.jobs / "job-1" / "1" / "algo-1"
    for path, text in (("logs/00000000000000000000.log", "said\n"), ("metrics/loss.points", "0"), ("ml/data", "big")):
        (instance / path).parent.mkdir(parents=True, exist_ok=True)
        (instance / path).write_text(text)
    home.images_file.write_text("[images]\n")
    home.file_systems_file.write_text("[file_systems]\n")
    (home.certificates / "ca.pem").write_text("certificate")
    home.server_log.write_text("noise")
    (home.cache / "model.json").write_text("{}")
    return home


def put(objects: FilesystemObjects, key: str, data: bytes) -> None:
    writer = objects.writer(Location(BUCKET, key), Attributes())
    writer.write(data)
    writer.commit(now=NOW)


@pytest.fixture(params=["backup", "backup.tar"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def keep(home: Home, target: Path) -> BackupSummary:
    return back_up(home, target, settings=ServerSettings(), now=NOW)


def contents(home: Home) -> dict[str, object]:
    """Return what a user would find in a home."""
    with closing(open_records(f"sqlite:///{home.records_file}")) as records:
        rows = list(records.export())
    with closing(FilesystemObjects(home.objects)) as objects:
        assert objects.verify(deep=True) == []
        bodies = dict(_bodies(objects))
    return {
        "rows": rows,
        "bodies": bodies,
        "credentials": home.credentials(),
        "settings": home.settings_file.read_text(),
        "rules": home.engines_file.read_text(),
        "log": (home.logs / "stream-1" / "00000000000000000000.log").read_bytes(),
        "points": (home.metrics / "points").read_bytes(),
        "authority": home.ca_file.read_text(),
    }


def _bodies(objects: FilesystemObjects) -> Iterator[tuple[str, bytes]]:
    for summary in objects.list_objects(BUCKET).objects:
        with objects.open(Location(BUCKET, summary.key)) as reader:
            yield summary.key, reader.read(0, summary.size)


def test_a_restored_home_contains_what_was_backed_up(home: Home, target: Path, tmp_path: Path) -> None:
    kept = keep(home, target)
    restored = Home(tmp_path / "restored")

    assert restore(restored, target, environment={}) == kept

    assert kept.objects == 5
    assert kept.records >= 3
    assert contents(restored) == contents(home)
    assert restored.check() == HomeVersion(FORMAT, __version__)


@pytest.mark.parametrize("with_master_key", [False, True])
def test_encrypted_objects_need_the_master_key_which_a_backup_has_only_if_asked(
    home: Home, target: Path, tmp_path: Path, with_master_key: bool
) -> None:
    with closing(FilesystemObjects(home.objects)) as objects:
        writer = objects.writer(Location(BUCKET, "secret"), Attributes({ALGORITHM: "aws:kms"}))
        writer.write(b"secret")
        writer.commit(now=NOW)
    back_up(home, target, settings=ServerSettings(), now=NOW, with_master_key=with_master_key)
    restored = Home(tmp_path / "restored")
    restore(restored, target, environment={})

    if not with_master_key:
        with closing(FilesystemObjects(restored.objects)) as objects, pytest.raises(Unavailable, match="master key"):
            objects.open(Location(BUCKET, "secret"))
        shutil.copy(home.keys / "master.key", restored.keys)
    assert contents(restored)["bodies"] == contents(home)["bodies"]


def test_a_restored_home_outlives_a_power_cut(home: Home, target: Path, tmp_path: Path) -> None:
    keep(home, target)
    disk = tmp_path / "disk"
    disk.mkdir()
    recorder = DiskRecorder(disk)

    recorder.run(lambda: restore(Home(disk / "restored"), target, environment={}))

    left = Home(recorder.cut_power(tmp_path / "left") / "restored")
    assert left.check() == HomeVersion(FORMAT, __version__)
    assert contents(left) == contents(home)


def test_only_the_owner_can_read_a_restored_home(home: Home, target: Path, tmp_path: Path) -> None:
    keep(home, target)
    restored = Home(tmp_path / "restored")
    restore(restored, target, environment={})

    assert restored.root.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in restored.root.iterdir())
    assert open_home(restored.root) == restored


def test_what_belongs_to_the_machine_is_not_backed_up(home: Home, target: Path, tmp_path: Path) -> None:
    home.connection.mkdir()
    (home.connection / "manifest.json").write_text("{}")
    keep(home, target)
    restored = Home(tmp_path / "restored")
    restore(restored, target, environment={})

    assert not restored.server_log.exists()
    assert not restored.connection.exists()
    assert list(restored.cache.iterdir()) == []


def test_a_backup_beside_an_open_store_is_a_snapshot(home: Home, target: Path, tmp_path: Path) -> None:
    with closing(FilesystemObjects(home.objects)) as objects:
        put(objects, "late", b"in time")
        keep(home, target)
        objects.delete(Location(BUCKET, "late"))
        put(objects, "later", b"too late")
    restored = Home(tmp_path / "restored")
    restore(restored, target, environment={})

    with closing(FilesystemObjects(restored.objects)) as objects:
        bodies = dict(_bodies(objects))
    assert bodies["late"] == b"in time"
    assert "later" not in bodies


def test_a_home_that_contains_a_yard_is_never_overwritten(home: Home, target: Path) -> None:
    keep(home, target)
    before = contents(home)

    with pytest.raises(Conflict, match="contains a yard already"):
        restore(home, target, environment={})
    assert contents(home) == before


def test_a_damaged_backup_is_refused_and_the_home_stays_absent(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    keep(home, target)
    (target / "credentials.json").write_text("{}")
    restored = Home(tmp_path / "restored")

    with pytest.raises(Corrupt, match=r"credentials\.json does not match the manifest"):
        restore(restored, target, environment={})
    assert not restored.root.exists()


def test_a_backup_of_a_newer_version_is_refused(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    keep(home, target)
    manifest = target / "manifest.json"
    manifest.write_text(
        manifest.read_text()
        .replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
        .replace('"made_by": "', '"made_by": "9.')
    )

    with pytest.raises(InvalidRequest, match=r"made by Trainyard 9\."):
        restore(Home(tmp_path / "restored"), target, environment={})


def test_an_interrupted_restore_stops_a_start_and_may_be_repeated(home: Home, target: Path, tmp_path: Path) -> None:
    keep(home, target)
    restored = Home(tmp_path / "restored")
    restored.restoring.mkdir(parents=True)
    (restored.root / "logs").mkdir()
    (restored.root / "credentials.json").write_text("{}")

    with pytest.raises(InvalidRequest, match="interrupted; run `trainyard restore` again"):
        open_home(restored.root)
    restore(restored, target, environment={})

    assert contents(restored) == contents(home)
    assert not restored.restoring.exists()


def test_a_failed_restore_leaves_nothing_behind(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    keep(home, target)
    restored = Home(tmp_path / "restored")

    # The database that the settings name is not empty.
    with closing(open_records(f"sqlite:///{tmp_path / 'other.sqlite'}")) as records:
        user = User("210987654321", "other", "TrainyardRole", is_admin=True, created_at=NOW)
        records.add_user(user, AccessKey("AKIAOTHER", "secret", user.account, NOW))
    with pytest.raises(Conflict):
        restore(restored, target, environment={"TRAINYARD_SERVER_RECORDS": f"sqlite:///{tmp_path / 'other.sqlite'}"})

    assert restored.check() is None


def test_a_backup_into_the_home_itself_is_refused(home: Home) -> None:
    with pytest.raises(InvalidRequest, match="outside it"):
        keep(home, home.root / "objects" / "backup")


def test_an_existing_target_is_refused(home: Home, target: Path) -> None:
    target.write_text("mine")

    with pytest.raises(AlreadyExists):
        keep(home, target)
    assert target.read_text() == "mine"


def test_a_folder_that_is_not_a_home_cannot_be_backed_up(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        keep(Home(tmp_path / "nothing"), tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_has_the_logs_and_metrics_of_jobs_and_not_their_data(home: Home, target: Path, tmp_path: Path) -> None:
    keep(home, target)
    restored = Home(tmp_path / "restored")
    restore(restored, target, environment={})
    files = [path for path in restored.jobs.rglob("*") if path.is_file()]
    assert sorted(path.relative_to(restored.jobs / "job-1" / "1" / "algo-1").as_posix() for path in files) == [
        "logs/00000000000000000000.log",
        "metrics/loss.points",
    ]
    assert restored.images_file.read_text() == "[images]\n"
    assert restored.file_systems_file.read_text() == "[file_systems]\n"
