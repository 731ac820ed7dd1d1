import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from trainyard.foundation.errors import Conflict, Corrupt, InvalidRequest, Unavailable
from trainyard.objects.database import Database, translate_error

SCHEMA = "CREATE TABLE IF NOT EXISTS line (text TEXT PRIMARY KEY);"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "lines.sqlite", schema=SCHEMA, version=3)
    yield opened
    opened.close()


def add(text: str) -> "Adds":
    return Adds(text)


class Adds:
    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO line VALUES (?)", (self.text,))
        return self.text


def lines(database: Database) -> list[str]:
    with database.reading() as connection:
        return [text for (text,) in connection.execute("SELECT text FROM line ORDER BY text")]


def test_writes_that_wait_for_a_commit_share_the_next_one(database: Database) -> None:
    is_running, may_end = Event(), Event()
    statements: list[str] = []

    def slow(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(statements.append)
        is_running.set()
        assert may_end.wait(30)

    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(database.write, slow)
        assert is_running.wait(30)
        rest = [pool.submit(database.write, add(f"{number:02}")) for number in range(20)]
        while database.waiting < 20:
            pass
        may_end.set()
        assert first.result(30) is None
        assert [write.result(30) for write in rest] == [f"{number:02}" for number in range(20)]
    assert statements.count("COMMIT") == 2
    assert lines(database) == [f"{number:02}" for number in range(20)]


def test_a_write_that_is_refused_leaves_the_others_of_its_commit(database: Database) -> None:
    is_running, may_end = Event(), Event()

    def slow(_: sqlite3.Connection) -> None:
        is_running.set()
        assert may_end.wait(30)

    def refuse(_: sqlite3.Connection) -> None:
        raise Conflict("line", "x", "is refused")

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(database.write, slow)
        assert is_running.wait(30)
        rest = [pool.submit(database.write, work) for work in (add("a"), refuse, add("b"))]
        while database.waiting < 3:
            pass
        may_end.set()
        first.result(30)
        assert isinstance(rest[1].exception(30), Conflict)
        assert (rest[0].result(30), rest[2].result(30)) == ("a", "b")
    assert lines(database) == ["a", "b"]


def test_a_mistake_in_one_write_fails_its_commit_and_no_later_one(database: Database) -> None:
    def mistaken(connection: sqlite3.Connection) -> None:
        add("lost")(connection)
        connection.execute("SELECT * FROM nowhere")

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        database.write(mistaken)
    database.write(add("kept"))
    assert lines(database) == ["kept"]


def test_a_deferred_write_is_part_of_the_next_commit(database: Database) -> None:
    database.write_later(add("later"))
    assert lines(database) == []
    database.write(add("now"))
    assert lines(database) == ["later", "now"]


def test_closing_runs_deferred_writes(database: Database, tmp_path: Path) -> None:
    database.write_later(add("later"))
    database.close()
    again = Database(tmp_path / "lines.sqlite", schema=SCHEMA, version=3)
    assert lines(again) == ["later"]
    again.close()


def test_a_database_of_a_newer_version_is_refused_unchanged(database: Database, tmp_path: Path) -> None:
    database.close()
    with pytest.raises(InvalidRequest, match=r"newer Trainyard .*its version is 3, this one supports 2"):
        Database(tmp_path / "lines.sqlite", schema="CREATE TABLE other (x);", version=2)


def test_a_file_that_is_not_a_database_is_corrupt_and_the_error_gives_advice(tmp_path: Path) -> None:
    (tmp_path / "lines.sqlite").write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(Corrupt, match="trainyard restore"):
        Database(tmp_path / "lines.sqlite", schema=SCHEMA, version=3)


def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="absent"):
        Database(tmp_path / "absent" / "lines.sqlite", schema=SCHEMA, version=3)


def test_a_full_disk_is_unavailable(database: Database, tmp_path: Path) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count = 4")  # SQLITE_FULL, as on a full disk
        for number in range(1000):
            connection.execute("INSERT INTO line VALUES (?)", (f"{number}" * 500,))

    with pytest.raises(Unavailable, match=r"is full. Free some space"):
        database.write(fill)
    assert lines(database) == []


def test_a_mistake_of_ours_is_not_explained_away() -> None:
    error = sqlite3.ProgrammingError("a mistake")
    assert translate_error(error, Path("x")) is error


def test_a_copy_is_of_one_moment(database: Database, tmp_path: Path) -> None:
    database.write(add("before"))
    database.back_up(tmp_path / "copy.sqlite")
    database.write(add("after"))
    copy = Database(tmp_path / "copy.sqlite", schema=SCHEMA, version=3)
    assert lines(copy) == ["before"]
    copy.close()
