from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.following.stories import (
    JOB,
    ended,
    lines_of,
    texts,
    training,
    tried_again,
    waiting,
)
from trainyard.foundation.jobs import SecondaryStatus
from trainyard.server.following import reading
from trainyard.server.following.place import Place
from trainyard.server.following.reading import place_before_last, read_on


def test_a_job_that_waits_tells_its_status_and_its_notes(tmp_path: Path) -> None:
    stage = waiting(tmp_path)
    stage.job = stage.job.noted("It is fitted.")
    status, note = stage.read_all()
    assert (status["kind"], status["status"], status["secondary"]) == ("status", "InProgress", "Pending")
    assert status["at_ms"] == 1782907200000
    assert (note["kind"], note["text"]) == ("note", "It is fitted.")


def test_nothing_new_is_nothing_told(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("a\n")
    place = read_on(stage.story, Place.before(JOB), with_logs=True).place
    batch = read_on(stage.story, place, with_logs=True)
    assert (batch.lines, batch.place, batch.is_last) == (b"", place, False)


def test_a_line_is_told_when_it_has_ended(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("half")
    assert texts(stage.read_all()) == []
    stage.write(" and half\nnext")
    assert texts(stage.read_all()) == ["half and half"]


def test_the_end_is_told_after_the_last_line(tmp_path: Path) -> None:
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


def test_statuses_stand_between_the_lines_where_they_came(tmp_path: Path) -> None:
    stage = training(tmp_path)
    for second in (0, 1, 2):
        stage.write(f"{second}\n", ms=1782907200000 + second * 1000 + 500)
    stage.job = tried_again(stage.job)
    told = [each.get("secondary") or each["text"] for each in stage.read_all()]
    assert told == ["Pending", "Starting", "0", "Training", "1", "Restarting", "2", "Starting"]


def test_whoever_does_not_want_logs_gets_none(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("line\n")
    stage.job = ended(stage.job)
    kinds = [each["kind"] for each in stage.read_all(with_logs=False)]
    assert kinds == ["status", "status", "status", "status", "ended"]


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_every_cursor_goes_on_behind_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(reading, "MAX_LINES", most)
    stage = training(tmp_path, instances=2)
    for number in range(5):
        stage.write(f"{number}\n\nüñ\r\n", instance=f"algo-{number % 2 + 1}", ms=number)
    stage.job = ended(tried_again(stage.job))
    stage.write("again\n", attempt=2)
    told = stage.read_all()
    assert texts(told) == [text for number in range(5) for text in (str(number), "", "üñ")] + ["again"]
    for number, line in enumerate(told[:-1]):
        assert stage.read_all(Place.parse(line["cursor"], JOB)) == told[number + 1 :]
    assert stage.read_all(Place.parse(told[-1]["cursor"], JOB)) == told[-1:]


def test_lines_of_instances_are_told_in_the_order_of_their_times(tmp_path: Path) -> None:
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


def test_a_batch_is_bounded_but_for_one_line(tmp_path: Path) -> None:
    stage = training(tmp_path)
    place = read_on(stage.story, Place.before(JOB), with_logs=True).place
    stage.write("x" * 900_000 + "\n" + "y\n" * 5000)
    batch = read_on(stage.story, place, with_logs=True)
    assert [len(text) for text in texts(lines_of(batch.lines))] == [900_000]
    batch = read_on(stage.story, batch.place, with_logs=True)
    assert texts(lines_of(batch.lines)) == ["y"] * reading.MAX_LINES


def test_what_is_dropped_from_the_middle_of_a_log_is_passed_over(tmp_path: Path) -> None:
    stage = training(tmp_path)
    stage.write("a\n")
    told = stage.read_all()
    place = Place.parse(told[-1]["cursor"], JOB)
    ahead = replace(place, offsets=(10**6,))
    assert texts(stage.read_all(ahead)) == []
    stage.write("b\n")
    assert texts(stage.read_all(place)) == ["b"]


def test_any_character_stays_within_its_line(tmp_path: Path) -> None:
    stage = training(tmp_path)
    odd = "\x00\x1b[31m\u2028\u2029\x85\r\x0b\x0c\U0001f686"
    stage.write(f"{odd}\n")
    batch = read_on(stage.story, Place.before(JOB), with_logs=True)
    assert batch.lines.isascii()
    assert texts(lines_of(batch.lines)) == [odd]


@pytest.mark.parametrize(("count", "expected"), [(0, []), (2, ["3", "4"]), (9, ["0", "1", "2", "3", "4"])])
def test_a_tail_is_the_last_lines_of_each_instance(tmp_path: Path, count: int, expected: list[str]) -> None:
    stage = training(tmp_path, instances=2)
    for instance in ("algo-1", "algo-2"):
        stage.write("".join(f"{number}\n" for number in range(5)) + "open", instance=instance)
    told = stage.read_all(place_before_last(stage.story, count))
    for instance in ("algo-1", "algo-2"):
        assert texts([each for each in told if each.get("instance") == instance]) == expected


def test_the_tail_of_a_job_that_waits_is_all_that_comes(tmp_path: Path) -> None:
    stage = waiting(tmp_path)
    assert place_before_last(stage.story, 5) == Place.before(JOB)
