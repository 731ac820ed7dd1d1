import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.foundation.sample_jobs import placed
from tests.unit.server.streaming.sample_streams import (
    JOB,
    ended,
    lines_of,
    texts,
    training,
    tried_again,
    waiting,
)
from trainyard.formats.logs import LogWriter
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.server.records.contract import ResourceId
from trainyard.server.streaming import batches
from trainyard.server.streaming.batches import FollowCursor, JobSnapshot, cursor_before_last, read_batch

OTHER = ResourceId("01a1de26-54cb-7e8b-aa83-2f443d1f2fc3")


def test_a_waiting_job_sends_its_status_and_notes(tmp_path: Path) -> None:
    stage = waiting(tmp_path)
    stage.job = stage.job.with_notes("It is fitted.")
    status, note = stage.read_all()
    assert (status["kind"], status["status"], status["secondary"]) == ("status", "InProgress", "Pending")
    assert status["at_ms"] == 1782907200000
    assert (note["kind"], note["text"]) == ("note", "It is fitted.")


def test_a_batch_is_empty_when_there_is_nothing_new(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("a\n")
    cursor = read_batch(stage.snapshot, FollowCursor.start(JOB), with_logs=True).cursor
    batch = read_batch(stage.snapshot, cursor, with_logs=True)
    assert (batch.lines, batch.cursor, batch.is_last) == (b"", cursor, False)


def test_a_line_is_sent_when_it_is_complete(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("half")
    assert texts(stage.read_all()) == []
    stage.write(" and half\nnext")
    assert texts(stage.read_all()) == ["half and half"]


def test_the_end_is_sent_after_the_last_line(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("last\n")
    stage.job = replace(ended(stage.job, SecondaryStatus.FAILED), failure="It broke.")
    told = stage.read_all()
    assert [each["kind"] for each in told] == ["status", "status", "status", "log", "status", "ended"]
    assert told[-1] | {"cursor": ""} == {
        "kind": "ended",
        "status": "Failed",
        "secondary": "Failed",
        "reason": "It broke.",
        "cursor": "",
    }


def test_statuses_come_between_log_lines_by_time(tmp_path: Path) -> None:
    stage = training(tmp_path)
    for second in (0, 1, 2):
        stage.write(f"{second}\n", ms=1782907200000 + second * 1000 + 500)
    stage.job = tried_again(stage.job)
    told = [each.get("secondary") or each["text"] for each in stage.read_all()]
    assert told == ["Pending", "Starting", "0", "Training", "1", "Restarting", "2", "Starting"]


def test_a_follower_without_logs_gets_none(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("line\n")
    stage.job = ended(stage.job)
    kinds = [each["kind"] for each in stage.read_all(with_logs=False)]
    assert kinds == ["status", "status", "status", "status", "ended"]


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_every_cursor_continues_after_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(batches, "MAX_LINES", most)
    stage = training(tmp_path, instances=2)
    for number in range(5):
        stage.write(f"{number}\n\nüñ\r\n", instance=f"algo-{number % 2 + 1}", ms=number)
    stage.job = ended(tried_again(stage.job))
    stage.write("again\n", attempt=2)
    told = stage.read_all()
    assert texts(told) == [text for number in range(5) for text in (str(number), "", "üñ")] + ["again"]
    for number, line in enumerate(told[:-1]):
        assert stage.read_all(FollowCursor.parse(line["cursor"], JOB)) == told[number + 1 :]
    assert stage.read_all(FollowCursor.parse(told[-1]["cursor"], JOB)) == told[-1:]


def test_lines_of_instances_are_sent_in_the_order_of_their_times(tmp_path: Path) -> None:
    stage = training(tmp_path, instances=2)
    stage.write("1\n", instance="algo-2", ms=1)
    stage.write("2\n", instance="algo-1", ms=2)
    stage.write("3\n", instance="algo-2", ms=3)
    told = [each for each in stage.read_all() if each["kind"] == "log"]
    assert [(each["text"], each["instance"], each["at_ms"]) for each in told] == [
        ("1", "algo-2", 1),
        ("2", "algo-1", 2),
        ("3", "algo-2", 3),
    ]


def test_a_batch_is_bounded_except_for_one_line(tmp_path: Path) -> None:
    stage = training(tmp_path)
    cursor = read_batch(stage.snapshot, FollowCursor.start(JOB), with_logs=True).cursor
    stage.write("x" * 900_000 + "\n" + "y\n" * 5000)
    batch = read_batch(stage.snapshot, cursor, with_logs=True)
    assert [len(text) for text in texts(lines_of(batch.lines))] == [900_000]
    batch = read_batch(stage.snapshot, batch.cursor, with_logs=True)
    assert texts(lines_of(batch.lines)) == ["y"] * batches.MAX_LINES


def test_a_gap_in_a_log_is_skipped(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("a\n")
    told = stage.read_all()
    cursor = FollowCursor.parse(told[-1]["cursor"], JOB)
    ahead = replace(cursor, offsets=(10**6,))
    assert texts(stage.read_all(ahead)) == []
    stage.write("b\n")
    assert texts(stage.read_all(cursor)) == ["b"]


def test_any_character_stays_within_its_line(tmp_path: Path) -> None:
    stage = training(tmp_path)
    odd = "\x00\x1b[31m\u2028\u2029\x85\r\x0b\x0c\U0001f686"
    stage.write(f"{odd}\n")
    batch = read_batch(stage.snapshot, FollowCursor.start(JOB), with_logs=True)
    assert batch.lines.isascii()
    assert texts(lines_of(batch.lines)) == [odd]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (2, ["3", "4"]), (9, ["0", "1", "2", "3", "4"])])
def test_a_tail_is_the_last_lines_of_each_instance(tmp_path: Path, count: int, expected: list[str]) -> None:
    stage = training(tmp_path, instances=2)
    for instance in ("algo-1", "algo-2"):
        stage.write("".join(f"{number}\n" for number in range(5)) + "open", instance=instance)
    told = stage.read_all(cursor_before_last(stage.snapshot, count))
    for instance in ("algo-1", "algo-2"):
        assert texts([each for each in told if each.get("instance") == instance]) == expected


def test_the_tail_of_a_waiting_job_starts_at_the_beginning(tmp_path: Path) -> None:
    stage = waiting(tmp_path)
    assert cursor_before_last(stage.snapshot, 5) == FollowCursor.start(JOB)


def test_a_cursor_survives_its_text() -> None:
    for cursor in (FollowCursor.start(JOB), FollowCursor(JOB[-12:], 3, 1, 2, (0, 2**62))):
        assert FollowCursor.parse(str(cursor), JOB) == cursor


def test_the_cursor_of_another_job_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="belongs to another job"):
        FollowCursor.parse(str(FollowCursor.start(OTHER)), JOB)


@pytest.mark.parametrize(
    "text", ["", "x", "2f443d1f2fc2", "2f443d1f2fc2.1.2", "2f443d1f2fc2.1.2.-1", "2f443d1f2fc2.1.2.3."]
)
def test_text_that_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not one of FollowJob's"):
        FollowCursor.parse(text, JOB)


@pytest.fixture
def snapshot(tmp_path: Path) -> JobSnapshot:
    """A job with two instances: the first wrote three lines and part of a fourth, the second wrote nothing."""
    snapshot = JobSnapshot(JOB, placed(instances=2), tmp_path)
    with LogWriter(tmp_path / JOB / "1" / "algo-1" / "logs") as writer:
        for number, text in enumerate((b"one\n", b"two\nthree\n", b"fo")):
            writer.append(text, number)
    return snapshot


def last_lines(snapshot: JobSnapshot, count: int) -> list[str]:
    lines = read_batch(snapshot, cursor_before_last(snapshot, count), with_logs=True).lines.splitlines()
    return [event["text"] for event in map(json.loads, lines) if event["kind"] == "log"]


@pytest.mark.parametrize(
    ("count", "texts"), [(0, []), (1, ["three"]), (2, ["two", "three"]), (9, ["one", "two", "three"])]
)
def test_only_the_last_lines_are_sent(snapshot: JobSnapshot, count: int, texts: list[str]) -> None:
    assert last_lines(snapshot, count) == texts


def test_all_statuses_are_sent(snapshot: JobSnapshot) -> None:
    lines = read_batch(snapshot, cursor_before_last(snapshot, 0), with_logs=True).lines.splitlines()
    statuses = [event["secondary"] for event in map(json.loads, lines) if event["kind"] == "status"]
    assert statuses == [step.status for step in snapshot.job.transitions]
