"""Text forms of scalars: numbers, booleans, blobs and timestamps.

Readers raise ValueError; each protocol turns it into a fault of its own.
"""

import binascii
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from trainyard.foundation.clock import EPOCH, to_micros

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def text_reader(type_name: str) -> Callable[[str], Any]:
    """Return the function that reads a scalar type from text."""
    if type_name in _INTEGER_BITS:
        return lambda text: check_integer(read_integer(text), type_name)
    return _READERS.get(type_name, str)


def read_integer(text: str) -> int:
    stripped = text.strip()
    if not _INTEGER.fullmatch(stripped):
        raise ValueError(f"'{text[:40]}' is not an integer")
    return int(stripped)


def check_integer(number: int, type_name: str) -> int:
    """Return the number if it fits the type, else raise ValueError."""
    bound = 1 << (_INTEGER_BITS[type_name] - 1)
    if not -bound <= number < bound:
        raise ValueError(f"A number is out of the range of {type_name}")
    return number


def read_float(text: str) -> float:
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"'{text[:40]}' is not a number")
    return check_float(float(stripped))


def check_float(number: float) -> float:
    """Return the number if it is finite, else raise ValueError."""
    if not math.isfinite(number):
        raise ValueError("A number is not finite")
    return number


def read_boolean(text: str) -> bool:
    lower = text.strip().lower()
    if lower not in ("true", "false"):
        raise ValueError(f"'{text[:40]}' is neither true nor false")
    return lower == "true"


def read_blob(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("A blob is not valid base64") from error


def read_timestamp(text: str) -> datetime:
    """Read a timestamp in ISO 8601, as an HTTP date, or as seconds since the epoch."""
    stripped = text.strip()
    try:
        if _NUMBER.fullmatch(stripped):
            return from_epoch(float(stripped))
        if stripped[:4].isdigit():
            return _to_utc(datetime.fromisoformat(stripped))
        return _to_utc(parsedate_to_datetime(stripped))
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        raise ValueError(f"'{text[:40]}' is not a timestamp") from error


def from_epoch(seconds: float) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except (OverflowError, ValueError) as error:
        raise ValueError("A timestamp is out of range") from error


def _to_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_READERS: dict[str, Callable[[str], Any]] = {
    "float": read_float,
    "double": read_float,
    "boolean": read_boolean,
    "blob": read_blob,
    "timestamp": read_timestamp,
}


def text_writer(type_name: str, timestamp_format: str) -> Callable[[Any], str]:
    """Return the function that writes a scalar type as text."""
    if type_name == "timestamp":
        return _TIMESTAMP_WRITERS[timestamp_format]
    return _WRITERS.get(type_name, str)


def write_boolean(value: bool) -> str:
    return "true" if value else "false"


def write_blob(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def write_float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return non_finite_word(value)


def non_finite_word(value: float) -> str:
    """Return the AWS protocols' word for a float that JSON cannot represent."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_epoch(moment: datetime) -> float:
    """Return seconds since the epoch, at AWS's resolution of a millisecond."""
    return to_micros(moment) // 1000 / 1000


def write_epoch(moment: datetime) -> str:
    return repr(to_epoch(moment))


def write_iso8601(moment: datetime) -> str:
    """Return `2026-01-31T12:00:00Z`, with milliseconds unless they are zero."""
    utc = moment.astimezone(UTC)
    precision = "milliseconds" if utc.microsecond >= 1000 else "seconds"
    return utc.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def write_iso8601_millis(moment: datetime) -> str:
    """Return `2026-01-31T12:00:00.000Z`, the form that S3 always uses.

    It drops fractions of a second, so that listings and Last-Modified headers agree.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + ".000Z"


def write_http_date(moment: datetime) -> str:
    """Return `Sat, 31 Jan 2026 12:00:00 GMT`, in English in every locale."""
    utc = moment.astimezone(UTC)
    return (
        f"{_DAYS[utc.weekday()]}, {utc.day:02} {_MONTHS[utc.month - 1]} {utc.year:04} "
        f"{utc.hour:02}:{utc.minute:02}:{utc.second:02} GMT"
    )


_WRITERS: dict[str, Callable[[Any], str]] = {
    "boolean": write_boolean,
    "blob": write_blob,
    "float": write_float,
    "double": write_float,
}
_TIMESTAMP_WRITERS: dict[str, Callable[[datetime], str]] = {
    "iso8601": write_iso8601,
    "iso8601-millis": write_iso8601_millis,
    "rfc822": write_http_date,
    "unixTimestamp": write_epoch,
}
