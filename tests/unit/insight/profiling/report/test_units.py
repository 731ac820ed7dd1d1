import pytest

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.insight.profiling.report.units import (
    bytes_text,
    duration_text,
    moment_text,
    money_text,
    number_text,
    percent_text,
    speedup_text,
    tick_text,
    unit_of,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234, "1,234"), (12345.6, "12,346"), (1.23456, "1.23"), (0.0981, "0.0981"), (9.81e-9, "9.81e-09")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-9, "2 ns"),
        (13.44e-6, "13.4 µs"),
        (0.0134, "13.4 ms"),
        (0.9999, "1 s"),
        (59.2, "59.2 s"),
        (95, "1 min 35 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_durations_are_in_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.50 kB"), (3e9, "3 GB"), (2e18, "2,000 PB")]
)
def test_sizes_count_in_thousands(size: float, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_not_known_is_a_dash(value: float | None) -> None:
    dash = "\N{EN DASH}"
    assert [number_text(value), duration_text(value), bytes_text(value), percent_text(value)] == [dash] * 4
    assert value_text(value, "W") == dash


def test_percentages_have_one_decimal() -> None:
    assert [percent_text(value) for value in (0, 0.01, 44.04, 100)] == ["0 %", "< 0.1 %", "44.0 %", "100 %"]
    assert tick_text(50, "%") == "50 %"


def test_money_and_speedups() -> None:
    assert money_text(1.2123, "USD") == "1.21 USD"
    assert money_text(2, "") == "2"
    assert [speedup_text(1.789), speedup_text(14.2)] == ["1.79\N{MULTIPLICATION SIGN}", "14\N{MULTIPLICATION SIGN}"]


def test_times_are_utc_and_any_number_is_bearable() -> None:
    assert moment_text(1_790_000_000_000_000) == "2026-09-21 14:13:20 UTC"
    assert moment_text(2**62) == "\N{EN DASH}"


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        (HardwareMetric.CPU_PERCENT, "%"),
        (HardwareMetric.DISK_READ_BYTES_S, "B/s"),
        (HardwareMetric.MEMORY_BYTES, "B"),
        (HardwareMetric.GPU_POWER_WATTS, "W"),
        (HardwareMetric.GPU_CLOCK_MHZ, "MHz"),
        (HardwareMetric.JOB_THREADS, ""),
    ],
)
def test_units_follow_from_the_names_of_metrics(metric: HardwareMetric, unit: str) -> None:
    assert unit_of(metric) == unit
