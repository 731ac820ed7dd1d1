import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.journal import rotate_log
from trainyard.server.fault_log import FaultPage, read_faults


def entry(number: int, level: str = "error", **fields: object) -> bytes:
    at = datetime.fromtimestamp(number, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"at": at, "level": level, "source": "a.b", "message": f"fault {number}", **fields}).encode()


def write(log: Path, lines: list[bytes]) -> None:
    with log.open("ab") as opened:
        opened.write(b"".join(line + b"\n" for line in lines))


def messages(page: FaultPage) -> list[str]:
    return [each.message for each in page.faults]


def test_the_newest_faults_come_first_page_by_page_across_rotated_files(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    write(log, [entry(1), entry(2, "info"), b"Traceback of an interpreter", entry(3, "warning"), b"", b"{}"])
    rotate_log(log)
    write(log, [entry(4, "critical"), entry(5, job="j-1", traceback="Traceback\nValueError")])

    assert messages(read_faults(log)) == ["fault 5", "fault 4", "fault 3", "fault 1"]
    assert messages(read_faults(log, level="error")) == ["fault 5", "fault 4", "fault 1"]
    assert messages(read_faults(log, text="J-1")) == ["fault 5"]
    newest = read_faults(log, limit=1).faults[0]
    assert (newest.fields, newest.traceback, newest.level) == ({"job": "j-1"}, "Traceback\nValueError", "error")

    found, after = list[str](), ""
    while True:
        page = read_faults(log, limit=1, after=after)
        found += messages(page)
        # The log is rotated and grows while somebody reads it.
        if page.following is None:
            break
        if not after:
            rotate_log(log)
            write(log, [entry(6)])
        after = page.following
    assert found == ["fault 5", "fault 4", "fault 3", "fault 1"]


def test_a_long_log_is_read_in_bounded_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.server.fault_log.MAX_READ_BYTES", 100_000)
    log = tmp_path / "server.log"
    write(log, [entry(0), *[entry(number, "info", text="x" * 1000) for number in range(2000)], b"x" * 1_000_000])
    pages, page = 1, read_faults(log)
    while page.following is not None:
        assert page.faults == []
        page, pages = read_faults(log, after=page.following), pages + 1
    assert messages(page) == ["fault 0"]
    assert pages > 10


def test_a_log_that_is_gone_has_no_faults(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert read_faults(log) == FaultPage([], None)
    write(log, [entry(1)])
    assert read_faults(log, after="12345.6").following is None
    with pytest.raises(InvalidRequest):
        read_faults(log, after="x")
