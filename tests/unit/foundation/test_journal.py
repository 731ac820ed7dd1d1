import io
import json
import logging
from collections.abc import Iterator

import pytest

from trainyard.foundation.journal import write_journal


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
