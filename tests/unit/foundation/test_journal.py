import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.foundation.journal import KEPT_FILES, RotatedStream, open_log, write_journal


@pytest.fixture
def journal() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    stream = io.StringIO()
    write_journal(stream, "info")
    yield stream
    root.handlers = handlers
    root.setLevel(level)


def test_a_line_is_one_object_with_the_fields_beside_the_message(journal: io.StringIO) -> None:
    logging.getLogger("yard").info("job started", extra={"job": "mnist\n7"})
    line = json.loads(journal.getvalue())
    assert (line["level"], line["source"], line["message"], line["job"]) == ("info", "yard", "job started", "mnist\n7")
    assert journal.getvalue().count("\n") == 1


def test_a_traceback_stays_inside_its_line(journal: io.StringIO) -> None:
    try:
        raise ValueError("seven")
    except ValueError:
        logging.getLogger("yard").exception("step broke")
    assert "ValueError: seven" in json.loads(journal.getvalue())["traceback"]


def test_lines_below_the_level_are_left_out(journal: io.StringIO) -> None:
    logging.getLogger("yard").debug("call answered")
    assert journal.getvalue() == ""


def test_a_log_file_is_put_aside_while_the_program_runs(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    with os.fdopen(open_log(file), "a") as stream:
        handler = RotatedStream(stream, file, limit_bytes=1000)
        for number in range(100):
            handler.emit(logging.makeLogRecord({"msg": f"line {number:050}"}))
        stream.write("what does not go through logging\n")
    assert {each.name for each in tmp_path.iterdir()} == {
        "server.log",
        *(f"server.log.{n}" for n in range(1, KEPT_FILES + 1)),
    }
    assert all(each.stat().st_size < 1100 for each in tmp_path.iterdir())
    lines = [line for n in range(KEPT_FILES, 0, -1) for line in (tmp_path / f"server.log.{n}").read_text().splitlines()]
    lines += file.read_text().splitlines()
    assert lines[-1] == "what does not go through logging"
    numbers = [int(line.split()[1]) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 100)), "no line is lost or doubled but with the oldest file"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_stream_that_is_not_the_log_file_is_left_alone(tmp_path: Path) -> None:
    file, other = tmp_path / "server.log", tmp_path / "other"
    file.write_text("x" * 2000)
    with other.open("a") as stream:
        handler = RotatedStream(stream, file, limit_bytes=1000)
        for _ in range(100):
            handler.emit(logging.makeLogRecord({"msg": "y" * 50}))
    assert {each.name for each in tmp_path.iterdir()} == {"server.log", "other"}
    assert other.stat().st_size == 5100
