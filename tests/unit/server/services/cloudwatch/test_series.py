from datetime import timedelta

import pytest

from tests.unit.server.services.accounts import NOON
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.cloudwatch.series import aligned_micros, require_period


@pytest.mark.parametrize(
    ("age", "start_s", "period_s", "expected_s"),
    [
        (timedelta(hours=1), 34.5, 60, 0),
        (timedelta(hours=1), 94.5, 3600, 60),
        (timedelta(hours=1), 34.5, 1, 34),
        (timedelta(hours=1), 34.5, 10, 30),
        (timedelta(hours=-1), 61.0, 60, 60),
        (timedelta(days=20), 7 * 60 + 5.0, 300, 300),
        (timedelta(days=100), 40 * 60.0, 3600, 0),
    ],
)
def test_the_start_is_rounded_down_the_coarser_the_older_it_is(
    age: timedelta, start_s: float, period_s: int, expected_s: int
) -> None:
    start = NOON + timedelta(seconds=start_s)
    assert aligned_micros(start, period_s, now=start + age) == to_micros(NOON + timedelta(seconds=expected_s))


@pytest.mark.parametrize("period_s", [1, 5, 10, 20, 30, 60, 120, 86_400])
def test_the_periods_of_aws_are_allowed(period_s: int) -> None:
    require_period(period_s)


@pytest.mark.parametrize("period_s", [2, 15, 59, 61, 90])
def test_other_periods_are_refused(period_s: int) -> None:
    with pytest.raises(InvalidRequest, match=f"The value {period_s} for parameter Period is invalid"):
        require_period(period_s)
