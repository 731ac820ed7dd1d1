from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainyard.foundation.home import Credentials, Home
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes
from trainyard.objects.encryption.headers import ALGORITHM
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.home import open_home
from trainyard.server.http.certificates import ensure_certificates
from trainyard.server.records.sql import open_records
from trainyard.server.settings import ServerSettings
from trainyard.server.upkeep.checkup import HomeCheck, check_home

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUCKET = BucketRef("123456789012", "data")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = open_home(tmp_path / "home")
    home.write_credentials(Credentials(BUCKET.account, "admin", "Role", "AKIAEXAMPLE", "secret", "us-east-1"))
    open_records(f"sqlite:///{home.records_file}").close()
    with closing(FilesystemObjects(home.objects)) as objects:
        objects.create_bucket(BUCKET, region="us-east-1", now=NOW)
        writer = objects.writer(Location(BUCKET, "key"), Attributes())
        writer.write(b"bytes")
        writer.commit(now=NOW)
    ensure_certificates(home, [], NOW)
    return home


def checks(home: Home, *, now: datetime = NOW, thorough: bool = False) -> Mapping[str, HomeCheck]:
    return {check.name: check for check in check_home(home, ServerSettings(), now=now, thorough=thorough)}


def the_data_file(home: Home) -> Path:
    return next(path for path in (home.objects / "data").rglob("*") if path.is_file())


@pytest.mark.parametrize("thorough", [False, True])
def test_a_healthy_home_passes_every_check(home: Home, thorough: bool) -> None:
    found = checks(home, thorough=thorough)

    assert [check for check in found.values() if not check.ok] == []
    of_home = ["version", "privacy", "yard", "credentials", "records", "encryption", "objects", "certificates", "disk"]
    assert list(found) == [*of_home, "engine rules", "warm workers", "engine local"]
    assert all(check.detail and check.consequence for check in found.values())


def test_a_missing_master_key_is_reported_and_is_no_damage_of_the_objects(home: Home) -> None:
    with closing(FilesystemObjects(home.objects)) as objects:
        writer = objects.writer(Location(BUCKET, "secret"), Attributes({ALGORITHM: "AES256"}))
        writer.write(b"bytes")
        writer.commit(now=NOW)
    assert checks(home, thorough=True)["encryption"].ok
    (home.keys / "master.key").unlink()

    found = checks(home, thorough=True)

    assert (found["encryption"].ok, found["objects"].ok) == (False, True)
    assert f"The master key {home.keys / 'master.key'} is missing" in found["encryption"].detail


def test_each_engine_of_the_settings_is_checked(home: Home) -> None:
    settings = ServerSettings(engines="local,container,slurm", container_tool="nowhere/podman")

    found = {check.name: check for check in check_home(home, settings, now=NOW, thorough=False)}

    assert [found[f"engine {name}"].ok for name in ("local", "container", "slurm")] == [True, False, False]
    assert "There is no program nowhere/podman" in found["engine container"].detail


@pytest.mark.parametrize(
    ("rules", "ok", "detail"),
    [
        ('[[rules]]\nengine = "local"\n', True, "1 in engines.toml"),
        ('[[rules]]\nengine = "ray"\n', False, "they name ray, which the setting `engines` does not"),
    ],
)
def test_rules_for_missing_engines_are_found(home: Home, rules: str, ok: bool, detail: str) -> None:
    home.engines_file.write_text(rules)

    check = checks(home)["engine rules"]

    assert (check.ok, check.detail) == (ok, detail)


def test_a_home_that_never_started_passes_too(tmp_path: Path) -> None:
    assert all(check.ok for check in checks(open_home(tmp_path / "home")).values())


def test_a_lost_data_file_is_found(home: Home) -> None:
    the_data_file(home).unlink()

    check = checks(home)["objects"]
    assert not check.ok
    assert "s3://data/key" in check.detail
    assert "trainyard restore" in check.consequence


def test_a_changed_byte_is_found_by_the_thorough_check_only(home: Home) -> None:
    file = the_data_file(home)
    file.chmod(0o600)
    file.write_bytes(b"bytez")

    assert checks(home)["objects"].ok
    assert not checks(home, thorough=True)["objects"].ok


def test_a_damaged_database_is_reported(home: Home) -> None:
    home.records_file.write_bytes(b"this is no database, whatever its name says" * 100)

    failed = [check for check in checks(home).values() if not check.ok]
    assert len(failed) == 1
    assert "records.sqlite" in failed[0].detail


def test_a_certificate_near_its_expiry_is_reported(home: Home) -> None:
    assert not checks(home, now=NOW + timedelta(days=380))["certificates"].ok


def test_a_home_that_others_can_read_is_reported_with_the_remedy(home: Home) -> None:
    home.root.chmod(0o755)

    check = checks(home)["privacy"]
    assert not check.ok
    assert f"chmod 700 {home.root}" in check.consequence


def test_a_warm_worker_that_failed_to_start_is_shown(home: Home) -> None:
    for key, text in (
        ("untrusted", '{"why": "Others can change it."}'),
        ("broken", '{"why": "It broke.", "fault": true}'),
    ):
        (home.warm / "111" / key).mkdir(parents=True)
        (home.warm / "111" / key / "refused.json").write_text(text)
    check = checks(home)["warm workers"]
    assert (check.ok, check.detail) == (False, "It broke.")
