"""How finely CloudWatch is asked for the metrics of a job, so that one answer has all of them."""

import math
from datetime import datetime, timedelta

MOST_POINTS = 1440  # in one answer: a day of minutes

_MINUTE = timedelta(minutes=1)


def period_of(start: datetime, end: datetime) -> timedelta:
    """A minute or, where an answer cannot have so many points, the least number of minutes that it can have."""
    return _MINUTE * max(1, math.ceil((end - start) / _MINUTE / MOST_POINTS))
