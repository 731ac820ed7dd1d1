"""Numbers as text for readers: durations, sizes, shares, money, in the unit that suits them."""

import math

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.foundation.clock import from_micros

# Signs that look like others in source code.
UNKNOWN = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_BY_SUFFIX = (
    ("_bytes_s", "B/s"),
    ("_percent", "%"),
    ("_bytes", "B"),
    ("_watts", "W"),
    ("_joules", "J"),
    ("_mhz", "MHz"),
    ("_celsius", "°C"),
)


def number_text(value: float | None, *, digits: int = 3) -> str:
    """Return a number with so many significant digits, and groups of thousands."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) < 10**digits:
        value = float(f"{value:.{digits - 1}e}")
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if decimals > 6:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, decimals)}f}"


def share_text(share: float | None) -> str:
    """Return a share, from 0 to 1, as a percentage."""
    return UNKNOWN if share is None else percent_text(share * 100)


def percent_text(percent: float | None) -> str:
    if percent is None or not math.isfinite(percent):
        return UNKNOWN
    if 0 < abs(percent) < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if abs(percent) >= 99.95 or percent == 0 else f"{percent:.1f} %"


def duration_text(seconds: float | None) -> str:
    """Return a duration in one or two units, such as 2 h 5 min or 13.4 ms."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    size = abs(seconds)
    if size >= 60:
        return _long_duration_text(seconds)
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if size * factor >= 0.9995:
            return f"{number_text(seconds * factor)} {unit}"
    return f"{number_text(seconds * 1e9)} ns" if seconds else "0 s"


def _long_duration_text(seconds: float) -> str:
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 else ""
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{sign}{whole // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{sign}{whole} s"


def bytes_text(size: float | None) -> str:
    if size is None or not math.isfinite(size):
        return UNKNOWN
    power = 0 if abs(size) < 1000 else min(int(math.log10(abs(size)) / 3), len(_BYTES) - 1)
    return f"{number_text(size / 1000**power)} {_BYTES[power]}"


def tick_text(value: float, unit: str) -> str:
    """Return a value of an axis, which is round."""
    return f"{value:.3g} %" if unit == "%" else value_text(value, unit)


def rate_text(flops_per_s: float) -> str:
    """Return operations per second."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if flops_per_s >= size:
            return f"{number_text(flops_per_s / size)} {prefix}FLOP/s"
    return f"{number_text(flops_per_s)} FLOP/s"


def money_text(value: float | None, currency: str) -> str:
    return UNKNOWN if value is None else f"{number_text(value)} {currency}".strip()


def speedup_text(factor: float) -> str:
    return f"{factor:.2f}{TIMES}" if factor < 10 else f"{factor:.0f}{TIMES}"


def moment_text(micros: int) -> str:
    """Return a time as the reader of any time zone understands it. A program may have written any number."""
    try:
        return f"{from_micros(micros):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return UNKNOWN


def unit_of(metric: HardwareMetric) -> str:
    """Return the unit of a metric, or nothing for a count."""
    return next((unit for suffix, unit in _BY_SUFFIX if metric.endswith(suffix)), "")


def value_text(value: float | None, unit: str) -> str:
    """Return a value in a unit that `unit_of` names, or seconds."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    match unit:
        case "%":
            return percent_text(value)
        case "B":
            return bytes_text(value)
        case "B/s":
            return f"{bytes_text(value)}/s"
        case "s":
            return duration_text(value)
        case "FLOP/s":
            return rate_text(value)
        case _:
            return f"{number_text(value)} {unit}".strip()
