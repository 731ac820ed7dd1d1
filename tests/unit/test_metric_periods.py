from datetime import UTC, datetime, timedelta

import pytest

from trainyard.metric_periods import MOST_POINTS, period_of
from trainyard.server.services.cloudwatch.periods import require_period
from trainyard.server.services.cloudwatch.statistics import MAX_DATAPOINTS

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "minutes"), [(0, 1), (1, 1), (24, 1), (24.01, 2), (48, 2), (48.01, 3), (24 * 28, 28)]
)
def test_a_period_is_as_short_as_one_answer_has_room_for(hours: float, minutes: int) -> None:
    lasted = timedelta(hours=hours)
    period = period_of(NOON, NOON + lasted)
    assert period == timedelta(minutes=minutes)
    assert lasted / period <= MOST_POINTS == MAX_DATAPOINTS
    require_period(int(period.total_seconds()))
