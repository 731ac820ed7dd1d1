import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trainyard import __version__
from trainyard.engines.local.code import AgentCode
from trainyard.foundation.home import Home, HomeVersion
from trainyard.link.contract import PROTOCOL
from trainyard.link.file_locks import hold
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.home import open_home
from trainyard.server.records import schema
from trainyard.server.records.sql import open_records
from trainyard.server.settings import ServerSettings
from trainyard.server.upkeep.checkup import HomeCheck
from trainyard.server.upkeep.upgrade_check import check_upgrade


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = open_home(tmp_path / "home")
    open_records(f"sqlite:///{home.records_file}").close()
    FilesystemObjects(home.objects).close()
    return home


def checks(home: Home) -> dict[str, HomeCheck]:
    return {check.name: check for check in check_upgrade(home, ServerSettings())}


def test_a_home_of_this_version_needs_nothing(home: Home) -> None:
    found = checks(home)
    assert all(check.ok for check in found.values())
    assert found["records"].detail == "the schema is current"
    assert found["agents"].detail == "none run"


def test_a_home_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    assert all(check.ok for check in checks(Home(tmp_path / "absent")).values())
    assert not (tmp_path / "absent").exists()


def test_migrations_are_named_and_not_run(home: Home) -> None:
    with closing(sqlite3.connect(home.records_file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0005'")
        connection.commit()

    found = checks(home)["records"]

    assert found.ok
    assert found.detail.startswith("3 migrations to run: 0006 ")
    assert f"; {schema.REVISION} " in found.detail
    assert checks(home)["records"] == found


def test_records_and_homes_of_a_newer_version_cannot_be_opened(home: Home) -> None:
    with closing(sqlite3.connect(home.records_file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    assert (checks(home)["records"].ok, "9999" in checks(home)["records"].detail) == (False, True)

    home.write_version(HomeVersion(99, "9.0"))
    assert "trainyard>=9.0" in checks(home)["home folder"].detail


@pytest.mark.parametrize(("protocol", "ok"), [(PROTOCOL - 1, True), (PROTOCOL - 2, False), (PROTOCOL + 1, False)])
def test_agents_of_another_version_are_named(home: Home, protocol: int, ok: bool) -> None:
    code = AgentCode(home.agents / "0.0.9-0123456789ab")
    contract = code.folder / "trainyard" / "link" / "contract.py"
    contract.parent.mkdir(parents=True)
    contract.write_text(f"x = 1\nPROTOCOL = {protocol}\n")
    assert checks(home)["agents"].detail == "none run"

    descriptor = hold(code.lock_file, shared=True)
    assert descriptor is not None
    found = checks(home)["agents"]

    assert (found.ok, "0.0.9" in found.detail) == (ok, True)
    assert __version__ not in found.detail
