from datetime import UTC, datetime

import pytest

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.metrics import MetricPoints, MetricStatistics, in_time_order, read_metrics
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.plan import MetricDefinition

LOSS = MetricDefinition("loss", r"loss: (\S+)")


def lines(*texts: str, instance: str = "algo-1") -> list[LogLine]:
    return [LogLine(instance, 1000 * second, text) for second, text in enumerate(texts)]


def test_metrics_are_read_again_from_lines() -> None:
    reading = read_metrics(lines("loss: 3", "nothing", "loss: 1", "loss: 2"), [LOSS])
    assert reading.metrics == [MetricStatistics("loss", 3, last=2, low=1, high=3, at=datetime.fromtimestamp(3, UTC))]
    assert reading.notes == []


def test_a_carriage_return_ends_a_line_too_and_each_line_has_one_value() -> None:
    (found,) = read_metrics(lines("loss: 3 loss: 2\rloss: 1"), [LOSS]).metrics
    assert (found.count, found.last, found.high) == (2, 1, 3)


def test_values_that_are_not_numbers_are_counted_and_reported() -> None:
    reading = read_metrics(lines("loss: high", "loss: nan", "loss: 1"), [LOSS])
    assert [metric.count for metric in reading.metrics] == [1]
    assert reading.notes == ['Metric loss captured something that is not a finite number 2 times, such as "nan".']


def test_the_last_value_is_the_latest_of_all_instances() -> None:
    first, second = lines("loss: 1", "loss: 2"), [LogLine("algo-2", 500, "loss: 7")]
    (found,) = read_metrics([*first, *second], [LOSS]).metrics
    assert (found.count, found.last, found.high, found.at) == (3, 2, 7, datetime.fromtimestamp(1, UTC))


def test_metrics_come_in_the_order_of_their_definitions() -> None:
    accuracy = MetricDefinition("accuracy", "acc=([0-9.]+)")
    reading = read_metrics(lines("loss: 1 acc=0.5"), [accuracy, LOSS])
    assert [metric.name for metric in reading.metrics] == ["accuracy", "loss"]


def test_a_definition_without_a_group_takes_the_whole_match() -> None:
    (found,) = read_metrics(lines("after 12 steps"), [MetricDefinition("steps", "[0-9]+")]).metrics
    assert found.last == 12


def test_an_invalid_regular_expression_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is not a regular expression"):
        read_metrics([], [MetricDefinition("loss", "([")])


def test_an_expression_that_is_too_slow_is_stopped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # RE2 is never slow.
    monkeypatch.setattr("trainyard.formats.patterns._re2_search", lambda *_: None)
    monkeypatch.setattr("trainyard.formats.patterns.TIME_LIMIT_S", 0.001)
    slow = MetricDefinition("slow", r"^(a|aa)+$(?<!b)")
    reading = read_metrics(lines(*["a" * 60 + "!"] * 12), [slow, MetricDefinition("marks", "(!)")])
    assert reading.metrics == []
    assert "Metric slow is no longer extracted: its regular expression is too slow." in reading.notes


def test_the_points_of_a_log_are_kept_by_instance() -> None:
    reading = read_metrics([*lines("loss: 1", "loss: 2"), LogLine("algo-2", 500, "loss: 7")], [LOSS])

    points = [(each.instance, list(each.at_us), list(each.values)) for each in reading.points("loss")]
    assert points == [("algo-1", [0, 1_000_000], [1, 2]), ("algo-2", [500_000], [7])]
    assert list(reading.points("other")) == []


def test_fewer_points_of_a_log_keep_its_extremes() -> None:
    reading = read_metrics(lines(*(f"loss: {number % 10}" for number in range(1000))), [LOSS])

    (points,) = reading.points("loss", max_points=10)
    assert len(points.values) == len(points.at_us) == 10
    assert set(points.values) == {0, 9}


def test_points_of_one_moment_keep_their_order() -> None:
    first, second = MetricPoints("algo-1", 1, [5, 5, 7], [0.9, 0.1, 0.5]), MetricPoints("algo-2", 1, [6], [0.3])
    assert in_time_order([first, second]) == [(5, 0.9), (5, 0.1), (6, 0.3), (7, 0.5)]
