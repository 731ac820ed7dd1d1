"""Times in several units, and the texts of times."""

from datetime import datetime

from trainyard._sdk.profiling.events import TimeUnits, time_text, to_micros

__all__ = [
    "TimeUnits",
    "convert_utc_datetime_to_microseconds",
    "convert_utc_timestamp_to_microseconds",
    "convert_utc_timestamp_to_nanoseconds",
    "convert_utc_timestamp_to_seconds",
    "ns_since_epoch_to_human_readable_time",
    "us_since_epoch_to_human_readable_time",
]

convert_utc_timestamp_to_microseconds = to_micros
us_since_epoch_to_human_readable_time = time_text


def convert_utc_timestamp_to_nanoseconds(timestamp: float, unit: TimeUnits = TimeUnits.MICROSECONDS) -> int:
    """Return a time in nanoseconds."""
    return int(timestamp) if unit is TimeUnits.NANOSECONDS else to_micros(timestamp, unit) * 1000


def convert_utc_timestamp_to_seconds(timestamp: float, unit: TimeUnits = TimeUnits.MICROSECONDS) -> int:
    """Return a time in whole seconds."""
    return to_micros(timestamp, unit) // 1_000_000


def convert_utc_datetime_to_microseconds(timestamp_datetime: datetime) -> int:
    """Return a datetime in microseconds since 1970."""
    return to_micros(timestamp_datetime.timestamp(), TimeUnits.SECONDS)


def ns_since_epoch_to_human_readable_time(ns_since_epoch: float) -> str:
    """Return the text of a time in nanoseconds."""
    return time_text(ns_since_epoch / 1000)
