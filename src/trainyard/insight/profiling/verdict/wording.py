"""How figures are written in the sentences of a verdict."""

import re

_LIBRARY_CALL = re.compile(r"\(\S+:\d+\)$")


def percent(share: float) -> str:
    value = share * 100
    if 0 < abs(value) < 0.05:
        return "less than 0.1 %"
    return f"{value:.0f} %" if abs(value) >= 0.95 or value == 0 else f"{value:.1f} %"


def number(value: float) -> str:
    """Return a number with three significant digits, never as a power of ten."""
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if abs(value) >= 0.9995 * size:
            return f"{number(value / size)}{word}"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def duration(seconds: float) -> str:
    if seconds >= 7200:
        return f"{number(seconds / 3600)} hours"
    if seconds >= 119.5:
        return f"{number(seconds / 60)} minutes"
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds * 1e6)} µs"


def count(value: float, singular: str, plural: str | None = None) -> str:
    text = number(value)
    return f"{text} {singular if text == '1' else plural or singular + 's'}"


def size(value: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{number(value)} {unit}"
        value /= 1000
    return f"{number(value)} TB"


def times(factor: float) -> str:
    text = f"{factor:.2f}" if factor < 1.1 else f"{factor:.2g}" if factor < 9.95 else f"{factor:.0f}"
    return f"{text} times"


def describe_cores(used: float | None, cores: float | None) -> list[str]:
    """Say how many cores a job keeps busy; nothing if that is not known."""
    if used is None or not cores:
        return []
    if cores == 1:
        return [f"The job uses {percent(used)} of its core."]
    if used < 0.95:
        return [f"The job uses {percent(used)} of one core, and has {number(cores)}."]
    return [f"The job keeps {used:.1f} of its {count(cores, 'core')} busy."]


def describe_gpu_use(share: float | None) -> list[str]:
    """Say how long the GPU computes; nothing if that is not known."""
    return [] if share is None else [f"The GPU computes {percent(share)} of the time."]


def is_library_call(called: str) -> bool:
    """Tell whether the innermost frame of a hot line is in a library: "step (torch/optim/sgd.py:70)"."""
    return _LIBRARY_CALL.search(called) is not None
