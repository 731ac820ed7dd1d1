"""The error for an unusable file says why it cannot be used and what to do."""

import os
import pwd
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from trainyard.foundation.errors import Conflict, Corrupt, NotFound, Unavailable
from trainyard.server.records import sqlite
from trainyard.server.records.contract import Change, NewEvent, Query
from trainyard.server.records.schema import facts, version
from trainyard.server.records.sql import SqlRecords, open_records
from trainyard.testing.records.samples import KIND, NOON, draft, in_threads, key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
def records(path: Path) -> Iterator[SqlRecords]:
    with closing(open_records(f"sqlite:///{path}")) as opened:
        yield opened


def test_the_files_are_for_the_owner_only(records: SqlRecords, path: Path) -> None:
    records.create(draft("a"), now=NOON)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"records.db": 0o600, "records.db-wal": 0o600, "records.db-shm": 0o600}


def test_a_commit_reaches_the_disk_and_readers_do_not_wait(records: SqlRecords) -> None:
    with records.database.engine.connect() as connection:
        answers = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    # A `synchronous` of 2 is FULL.
    assert answers == ["wal", 2, 1]


@pytest.mark.parametrize("name", ["with space.db", "50%.db", "what?.db", "a#b.db", "ä🚂.db"])
def test_a_path_is_used_as_it_is_written(tmp_path: Path, name: str) -> None:
    with closing(open_records(f"sqlite:///{tmp_path}/{name}")) as records:
        records.create(draft("a"), now=NOON)
    assert (tmp_path / name).exists()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nowhere/records\.db cannot be created \(No such file or directory\)"):
        open_records(f"sqlite:///{tmp_path}/nowhere/records.db")


def test_a_file_that_is_not_a_database_is_corrupt_and_stays_unchanged(path: Path) -> None:
    path.write_bytes(b"not a database, but somebody's thesis")
    with pytest.raises(Corrupt, match=r"records\.db is damaged: .*trainyard restore BACKUP"):
        open_records(f"sqlite:///{path}")
    assert path.read_bytes() == b"not a database, but somebody's thesis"


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    path.touch()
    with closing(open_records(f"sqlite:///{path}")) as records:
        assert records.users() == []


def test_processes_that_create_one_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        ready = threading.Barrier(6)

        def begin(_: int, path: Path = path, ready: threading.Barrier = ready) -> None:
            ready.wait()
            sqlite.SqliteDatabase(f"sqlite:///{path}").close()

        in_threads(6, begin)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_opening_again_keeps_the_locks_of_this_process(records: SqlRecords, path: Path) -> None:
    records.create(draft("a"), now=NOON)
    open_records(f"sqlite:///{path}").close()
    locks = Path("/proc/locks").read_text()
    # Without this lock, another process would take itself for the last one.
    assert f":{path.stat().st_ino} " in locks


def test_a_truncated_file_is_corrupt_at_open(path: Path) -> None:
    fill(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(Corrupt, match="trainyard restore BACKUP"):
        open_records(f"sqlite:///{path}")


def test_a_scrambled_schema_is_corrupt_at_open(path: Path) -> None:
    fill(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(3900))
    with pytest.raises(Corrupt, match="trainyard restore BACKUP"):
        open_records(f"sqlite:///{path}")


def test_scrambled_pages_are_corrupt_when_they_are_read(path: Path) -> None:
    fill(path)
    pages = pages_of_resources(path)
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xa5" * 4096)
    with closing(open_records(f"sqlite:///{path}")) as records:
        with pytest.raises(Corrupt, match=r"records\.db is damaged: .*trainyard restore BACKUP"):
            records.find(Query(KIND))
        with pytest.raises(Corrupt):
            records.create(draft("b"), now=NOON)


def test_a_scrambled_body_is_corrupt(records: SqlRecords) -> None:
    records.create(draft("a"), now=NOON)
    records.database.write(lambda connection: connection.execute(text("UPDATE resources SET body = '{\"x\": '")))
    with pytest.raises(Corrupt, match="body cannot be read"):
        records.load(key("a"))


def test_a_newer_database_is_refused_and_not_one_byte_changes(path: Path) -> None:
    with closing(open_records(f"sqlite:///{path}")) as records:
        records.database.write(lambda connection: connection.execute(version.update().values(version_num="0099")))
        records.database.write(lambda connection: connection.execute(facts.update().values(value="9.8.7")))
    before = path.read_bytes()
    with pytest.raises(Conflict, match=r"of Trainyard 9\.8\.7.*Nothing was changed"):
        open_records(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_full_disk_is_reported_and_the_write_leaves_no_trace(records: SqlRecords) -> None:
    records.create(draft("small"), now=NOON)
    with no_more_pages(records):
        with pytest.raises(Unavailable, match="the disk is full; free some space"):
            records.create(draft("large", body={"x": "x" * 1_000_000}), now=NOON, event=NewEvent("created"))
        with pytest.raises(NotFound):
            records.load(key("large"))
    assert records.events() == []
    records.create(draft("large", body={"x": "x" * 1_000_000}), now=NOON)


def test_a_lock_of_another_process_is_reported(
    records: SqlRecords, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    # The next connection gets the short timeout.
    records.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another process has locked it for too long"):
            records.create(draft("a"), now=NOON)
        assert records.find(Query(KIND)).resources == []
    records.create(draft("a"), now=NOON)


def test_a_writer_that_waits_too_long_gets_an_error(records: SqlRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    is_inside, may_leave = threading.Event(), threading.Event()

    def linger(_: object) -> None:
        is_inside.set()
        may_leave.wait(10)

    slow = threading.Thread(target=lambda: records.database.write(linger))
    slow.start()
    try:
        assert is_inside.wait(10)
        with pytest.raises(Unavailable, match="busy with other writes"):
            records.create(draft("a"), now=NOON)
    finally:
        may_leave.set()
        slow.join()
    records.create(draft("a"), now=NOON)


def test_a_failed_write_does_not_hold_the_lock(records: SqlRecords) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        records.database.write(fail)
    records.create(draft("a"), now=NOON)


def test_a_read_only_file_is_reported(shared_folder: Path) -> None:
    path = shared_folder / "records.db"
    fill(path)
    path.chmod(0o444)
    with ordinary_user(), closing(open_records(f"sqlite:///{path}")) as records:
        assert records.load(key("a")).key == key("a")
        with pytest.raises(Unavailable, match="it is read-only; make the file and its folder writable"):
            records.create(draft("b"), now=NOON)
        with pytest.raises(Unavailable, match="read-only"):
            records.apply(records.load(key("a")), Change(status="x"), now=NOON)


def test_a_read_only_folder_is_reported(shared_folder: Path) -> None:
    shared_folder.chmod(0o555)
    with ordinary_user(), pytest.raises(Unavailable, match=r"cannot be created \(Permission denied\)"):
        open_records(f"sqlite:///{shared_folder}/records.db")


def test_a_file_of_another_user_is_reported(shared_folder: Path) -> None:
    path = shared_folder / "records.db"
    fill(path)
    path.chmod(0o000)
    with ordinary_user(), pytest.raises(Unavailable, match=r"cannot be read \(Permission denied\)"):
        open_records(f"sqlite:///{path}")


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that an ordinary user can reach. Those of pytest are private to root when root runs it."""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Become an ordinary user, because root may write to everything."""
    if os.geteuid() != 0:
        yield
        return
    nobody = pwd.getpwnam("nobody")
    os.setegid(nobody.pw_gid)
    os.seteuid(nobody.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def no_more_pages(records: SqlRecords) -> Iterator[None]:
    """Make SQLite run out of space, in the one connection that the test's thread uses."""
    with records.database.engine.connect() as connection:
        before = connection.exec_driver_sql("PRAGMA max_page_count").scalar_one()
        used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {used + 2}")
    yield
    with records.database.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {before}")


def fill(path: Path) -> None:
    """Create a database of a few hundred pages, all in one file."""
    with closing(open_records(f"sqlite:///{path}")) as records:
        records.create(draft("a"), now=NOON)
        for number in range(50):
            records.create(draft(f"job-{number}", body={"x": "x" * 5000}), now=NOON, event=NewEvent("created"))


def pages_of_resources(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'resources'").fetchall()
    return [page for (page,) in found]
