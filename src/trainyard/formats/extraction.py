"""Extracts metrics from the output of a program.

Each metric is a regular expression that is searched in every line; its first group captures a value. A carriage return
ends a line too, because progress bars use it. To save time, an expression first runs over a whole chunk of lines, and
then again only on the lines of its matches. That gives the same values at a fraction of the cost.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainyard.formats.patterns import LinePattern, TooSlow
from trainyard.foundation.errors import InvalidRequest

# Characters; the rest of a longer line is not searched.
MAX_LINE = 64 * 1024
# An expression is dropped after it was too slow on this many lines.
MAX_STRIKES = 10

_LINE_END = re.compile(rb"[\r\n]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


class MetricPattern(Protocol):
    """The name of a metric and the expression that extracts it."""

    @property
    def name(self) -> str: ...

    @property
    def regex(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MetricValue:
    metric: str
    value: float


class MetricScanner:
    """Extracts the values from an output that comes in chunks; a chunk may end anywhere.

    `note` gets one message for each expression that is invalid or too slow.
    """

    def __init__(self, definitions: Sequence[MetricPattern], *, note: Callable[[str], None]) -> None:
        self._note = note
        self._metrics = [metric for each in definitions if (metric := self._compile(each))]
        self._partial = b""
        self._is_cut = False

    def scan(self, data: bytes) -> list[MetricValue]:
        """Return the values in the lines that these bytes complete, one metric after another."""
        if not self._metrics:
            return []
        if self._is_cut:
            data = self._after_cut(data)
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._buffer(data)
            return []
        whole, self._partial = self._partial + data[:cut], b""
        self._buffer(data[cut:])
        return self._values(_Lines(whole))

    def finish(self) -> list[MetricValue]:
        """Return the values in a last line without a line end."""
        whole, self._partial = self._partial, b""
        return self._values(_Lines(whole))

    def skip(self) -> None:
        """Skip a gap in the output: drop the incomplete line before it and the one after it."""
        self._partial, self._is_cut = b"", True

    def diverged_metrics(self) -> list[str]:
        """Return the metrics whose last captured number is not finite, as after a divergence."""
        return [metric.name for metric in self._metrics if metric.has_lapsed]

    def misses(self) -> Iterator[str]:
        """Iterate over a sentence for each metric that captured anything but finite numbers."""
        for metric in self._metrics:
            if metric.misses:
                yield (
                    f"Metric {metric.name} captured something that is not a finite number {metric.misses} times, "
                    f'such as "{metric.example[:80]}".'
                )

    def _after_cut(self, data: bytes) -> bytes:
        """Return what follows the end of the line that was cut; nothing until that line ends."""
        end = _LINE_END.search(data)
        if end is None:
            return b""
        self._is_cut = False
        return data[end.end() :]

    def _buffer(self, data: bytes) -> None:
        # MAX_LINE characters have at most this many bytes in UTF-8; more are never searched.
        self._partial += data[: 4 * MAX_LINE - len(self._partial)]

    def _compile(self, definition: MetricPattern) -> "_Metric | None":
        try:
            return _Metric(definition.name, LinePattern(definition.regex))
        except InvalidRequest as error:
            self._note(f"Metric {definition.name} is not extracted: {error.message}")
            return None

    def _values(self, lines: "_Lines") -> list[MetricValue]:
        values: list[MetricValue] = []
        for metric in self._metrics:
            if metric.strikes < MAX_STRIKES:
                values += [MetricValue(metric.name, value) for value in metric.values(lines)]
                self._note_if_dropped(metric)
        return values

    def _note_if_dropped(self, metric: "_Metric") -> None:
        if metric.strikes >= MAX_STRIKES:
            self._note(f"Metric {metric.name} is no longer extracted: its regular expression is too slow.")


class _Lines:
    """Complete lines of text, each cut to `MAX_LINE` characters."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("utf-8", "replace").replace("\r", "\n")

    def all(self) -> Iterator[str]:
        return (line[:MAX_LINE] for line in self.text.split("\n") if line)

    def lines_of_span(self, start: int, end: int) -> tuple[list[str], int]:
        """Return the lines that overlap the span from `start` to `end`, and where the next line begins."""
        first = self.text.rfind("\n", 0, start) + 1
        next_end = self.text.find("\n", end)
        stop = len(self.text) if next_end < 0 else next_end
        return [line[:MAX_LINE] for line in self.text[first:stop].split("\n") if line], stop + 1


class _Metric:
    def __init__(self, name: str, pattern: LinePattern) -> None:
        self.name = name
        self.misses = 0
        self.example = ""
        self.has_lapsed = False
        self.strikes = 0
        self._pattern = pattern
        self._by_chunk = pattern.is_local

    def values(self, lines: _Lines) -> list[float]:
        candidates = self._matching_lines(lines) if self._by_chunk else lines.all()
        return [value for line in candidates if (value := self._value(line)) is not None]

    def _matching_lines(self, lines: _Lines) -> Iterator[str]:
        position = 0
        while position < len(lines.text):
            try:
                span = self._pattern.span(lines.text, position)
            except TooSlow:
                # Some expressions are fast on one line and slow on many, such as a group that may contain line ends.
                self._by_chunk = False
                yield from (line[:MAX_LINE] for line in lines.text[position:].split("\n") if line)
                return
            if span is None:
                return
            overlapping, position = lines.lines_of_span(*span)
            yield from overlapping

    def _value(self, line: str) -> float | None:
        if self.strikes >= MAX_STRIKES:
            return None
        try:
            captured = self._pattern.value(line)
        except TooSlow:
            self.strikes += 1
            return None
        if captured is None:
            return None
        text = captured.strip()
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        self.has_lapsed = math.isinf(value) or _NOT_FINITE.fullmatch(text) is not None
        if math.isfinite(value):
            return value
        self.misses += 1
        self.example = captured
        return None
