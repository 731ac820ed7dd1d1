"""Time: aware UTC datetimes in memory, integer microseconds on disk."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_now() -> datetime:
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Return whole microseconds since the epoch; exact, unlike `timestamp()`."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def boottime() -> float:
    """Return seconds since boot, including suspended time. No correction of the clock changes them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
