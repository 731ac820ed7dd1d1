"""Periods, and how a range of times is cut into them."""

from datetime import datetime, timedelta

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest

MICROS = 1_000_000  # in a second

_SHORT = (1, 5, 10, 20, 30)


def require_period(period_s: int) -> None:
    if period_s not in _SHORT and period_s % 60:
        raise InvalidRequest(
            f"The value {period_s} for parameter Period is invalid; it must be 1, 5, 10, 20, 30 or a multiple of 60."
        )


def aligned_micros(start: datetime, period_s: int, *, now: datetime) -> int:
    """Where the first period begins: the start of the range, rounded down as AWS does, the coarser the older it is."""
    micros = to_micros(start)
    return micros - micros % (_resolution_s(now - start, period_s) * MICROS)


def _resolution_s(age: timedelta, period_s: int) -> int:
    if period_s < 60:
        return period_s
    if age < timedelta(days=15):
        return 60
    return 300 if age <= timedelta(days=63) else 3600
