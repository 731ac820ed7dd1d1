import re
from datetime import UTC, datetime

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli.metrics import Metric, extract
from trainyard.following import LogLine

LOSS = ("loss", re.compile(r"loss: (\S+)"))


def lines(*texts: str) -> list[LogLine]:
    return [LogLine("algo-1", 1000 * second, text) for second, text in enumerate(texts)]


def test_metrics_are_read_anew_from_lines() -> None:
    found = extract(lines("loss: 3", "nothing", "loss: 1", "loss: 2"), [LOSS])
    assert found == [Metric("loss", 3, last=2, low=1, high=3, at=datetime.fromtimestamp(3, UTC))]


def test_every_match_and_every_drawing_of_a_line_counts() -> None:
    (found,) = extract(lines("loss: 3 loss: 2\rloss: 1"), [LOSS])
    assert (found.count, found.last) == (3, 1)


def test_what_is_no_number_is_passed_over() -> None:
    (found,) = extract(lines("loss: high", "loss: 1"), [LOSS])
    assert found.count == 1


def test_an_optional_group_that_is_missing_is_passed_over() -> None:
    assert extract(lines("loss"), [("loss", re.compile("loss(=[0-9]+)?"))]) == []


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        ("loss", "is not NAME=REGEX"),
        ("loss=[", "cannot be read"),
        ("loss=loss: .*", "needs a group in parentheses"),
    ],
)
def test_a_definition_that_cannot_work_is_a_usage_error(trainyard: Trainyard, definition: str, complaint: str) -> None:
    result = trainyard("metrics", "@last", "--define", definition)
    assert result.code == 2
    assert complaint in result.err
