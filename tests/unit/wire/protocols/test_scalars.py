import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.wire.protocols.scalars import (
    from_epoch,
    read_blob,
    read_boolean,
    read_float,
    read_integer,
    read_timestamp,
    text_reader,
    to_epoch,
    write_blob,
    write_boolean,
    write_epoch,
    write_float,
    write_http_date,
    write_iso8601,
    write_iso8601_millis,
)

# Beyond this, a double of seconds has less than millisecond precision.
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
MOMENT = datetime(2026, 1, 31, 12, 34, 56, 789000, UTC)


@given(MOMENTS.map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)))
def test_a_moment_survives_every_format_that_has_milliseconds(moment: datetime) -> None:
    assert read_timestamp(write_iso8601(moment)) == moment
    assert from_epoch(to_epoch(moment)) == moment


@given(MOMENTS.map(lambda moment: moment.replace(microsecond=0)))
def test_a_whole_second_survives_an_http_date_and_the_form_of_s3(moment: datetime) -> None:
    assert read_timestamp(write_http_date(moment)) == moment
    assert read_timestamp(write_iso8601_millis(moment)) == moment


def test_moments_are_written_as_aws_writes_them() -> None:
    assert write_iso8601(MOMENT) == "2026-01-31T12:34:56.789Z"
    assert write_iso8601(MOMENT.replace(microsecond=0)) == "2026-01-31T12:34:56Z"
    assert write_iso8601_millis(MOMENT) == "2026-01-31T12:34:56.000Z"
    assert write_http_date(MOMENT) == "Sat, 31 Jan 2026 12:34:56 GMT"
    assert write_epoch(MOMENT) == "1769862896.789"


def test_a_moment_elsewhere_is_written_in_utc() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert write_iso8601(elsewhere) == write_iso8601(MOMENT)
    assert write_http_date(elsewhere) == write_http_date(MOMENT)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:34:56Z",
        "2026-01-31T12:34:56+00:00",
        "2026-01-31T14:34:56+02:00",
        "2026-01-31T12:34:56",
        "Sat, 31 Jan 2026 12:34:56 GMT",
        "Saturday, 31-Jan-26 12:34:56 GMT",
        "1769862896",
        "1769862896.0",
        " 1.769862896e9 ",
    ],
)
def test_a_moment_is_read_in_whatever_format_it_comes(text: str) -> None:
    moment = read_timestamp(text)
    assert moment == MOMENT.replace(microsecond=0)
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", ["", "now", "2026-13-01T00:00:00Z", "1e300", "-1e20", "Sat, 99 Jan 2026", "20-"])
def test_invalid_timestamps_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        read_timestamp(text)


@pytest.mark.parametrize("text", ["", "1.0", "1_000", "٣", "0x10", "--1", "1e3", "9" * 5000])
def test_invalid_integers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_integer(text)


@pytest.mark.parametrize(("kind", "bits"), [("integer", 32), ("long", 64)])
def test_an_integer_must_fit_its_type(kind: str, bits: int) -> None:
    most = (1 << bits - 1) - 1
    assert text_reader(kind)(str(most)) == most
    assert text_reader(kind)(str(-most - 1)) == -most - 1
    for beyond in (most + 1, -most - 2):
        with pytest.raises(ValueError, match="out of the range"):
            text_reader(kind)(str(beyond))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_being_written(number: float) -> None:
    assert read_float(write_float(number)) == number


@pytest.mark.parametrize("text", ["", "NaN", "inf", "Infinity", "1e999", "1_0", "abc"])
def test_non_finite_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        read_float(text)


def test_non_finite_numbers_are_written_as_words() -> None:
    assert [write_float(number) for number in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]


def test_truth_is_a_word() -> None:
    assert (read_boolean("true"), read_boolean("False"), write_boolean(True)) == (True, False, "true")
    with pytest.raises(ValueError, match="neither true nor false"):
        read_boolean("yes")


@given(st.binary())
def test_bytes_survive_being_written(content: bytes) -> None:
    assert read_blob(write_blob(content)) == content


@pytest.mark.parametrize("text", ["a", "====", "ü", "YQ==YQ", "Y Q="])
def test_invalid_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base64"):
        read_blob(text)
