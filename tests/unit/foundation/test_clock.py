from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from trainyard.foundation.clock import from_micros, to_micros


@given(st.datetimes(datetime(1970, 1, 1), datetime(2500, 1, 1), timezones=st.just(UTC)))
def test_microseconds_are_exact_both_ways(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


def test_one_microsecond_is_one() -> None:
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert to_micros(noon + timedelta(microseconds=1)) - to_micros(noon) == 1
