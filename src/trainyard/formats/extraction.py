"""Metrics found in what a program writes.

A definition is a regular expression that is searched in each line; what its first group captures is a value of the
metric. A carriage return ends a line too, as progress bars use it. Lines are not looked at one by one: an expression
runs over all lines that came at once, and then exactly on those that it touched, which gives the same values at a
fraction of the cost.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainyard.formats.patterns import LinePattern, TooSlow
from trainyard.foundation.errors import InvalidRequest

MAX_LINE = 64 * 1024  # characters of a line that are looked at
MAX_STRIKES = 10  # lines on which an expression may be too slow before it is given up

_LINE_END = re.compile(rb"[\r\n]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf(?:inity)?)", re.IGNORECASE)


class Definition(Protocol):
    """A metric by its name and the expression that finds it."""

    @property
    def name(self) -> str: ...

    @property
    def regex(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Value:
    metric: str
    value: float


class MetricScanner:
    """Takes an output piece by piece and gives the values in it; the pieces may be cut anywhere.

    `note` is told once of each definition that is no regular expression, or turned out to be too slow.
    """

    def __init__(self, definitions: Sequence[Definition], *, note: Callable[[str], None]) -> None:
        self._note = note
        self._metrics = [metric for each in definitions if (metric := self._compiled(each))]
        self._partial = b""
        self._is_cut = False

    def scan(self, data: bytes) -> list[Value]:
        """The values in the lines that these bytes complete, one metric after another."""
        if not self._metrics:
            return []
        if self._is_cut:
            data = self._after_cut(data)
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._keep(data)
            return []
        whole, self._partial = self._partial + data[:cut], b""
        self._keep(data[cut:])
        return self._values(_Lines(whole))

    def finish(self) -> list[Value]:
        """The values in a last line that has no end."""
        whole, self._partial = self._partial, b""
        return self._values(_Lines(whole))

    def skip(self) -> None:
        """Something is left out here: neither the line before the gap nor the one after it can be known whole."""
        self._partial, self._is_cut = b"", True

    def lapsed(self) -> list[str]:
        """The metrics that last captured a number that is not finite, as those of a training that has diverged."""
        return [metric.name for metric in self._metrics if metric.has_lapsed]

    def misses(self) -> Iterator[str]:
        """A sentence on each metric that captured something else than numbers."""
        for metric in self._metrics:
            if metric.misses:
                yield (
                    f"Metric {metric.name} captured something that is not a finite number {metric.misses} times, "
                    f'such as "{metric.example[:80]}".'
                )

    def _after_cut(self, data: bytes) -> bytes:
        """What follows the end of the line that was cut; nothing while that line goes on."""
        end = _LINE_END.search(data)
        if end is None:
            return b""
        self._is_cut = False
        return data[end.end() :]

    def _keep(self, data: bytes) -> None:
        # As many bytes as the longest looked-at line may have in UTF-8; what is beyond is never looked at.
        self._partial += data[: 4 * MAX_LINE - len(self._partial)]

    def _compiled(self, definition: Definition) -> "_Metric | None":
        try:
            return _Metric(definition.name, LinePattern(definition.regex))
        except InvalidRequest as error:
            self._note(f"Metric {definition.name} is not extracted: {error.message}")
            return None

    def _values(self, lines: "_Lines") -> list[Value]:
        values: list[Value] = []
        for metric in self._metrics:
            if metric.strikes < MAX_STRIKES:
                values += [Value(metric.name, value) for value in metric.values(lines)]
                self._tell_if_given_up(metric)
        return values

    def _tell_if_given_up(self, metric: "_Metric") -> None:
        if metric.strikes >= MAX_STRIKES:
            self._note(f"Metric {metric.name} is extracted no further: its regular expression is too slow.")


class _Lines:
    """Whole lines of text, of which only the first characters count where they are long."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("utf-8", "replace").replace("\r", "\n")

    def all(self) -> Iterator[str]:
        return (line[:MAX_LINE] for line in self.text.split("\n") if line)

    def touched(self, start: int, end: int) -> tuple[list[str], int]:
        """The lines that a match from `start` to `end` has a part in, and where the one after them begins."""
        first = self.text.rfind("\n", 0, start) + 1
        behind = self.text.find("\n", end)
        stop = len(self.text) if behind < 0 else behind
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
        candidates = self._touched(lines) if self._by_chunk else lines.all()
        return [value for line in candidates if (value := self._value(line)) is not None]

    def _touched(self, lines: _Lines) -> Iterator[str]:
        position = 0
        while position < len(lines.text):
            try:
                span = self._pattern.span(lines.text, position)
            except TooSlow:
                # Some expressions are quick on lines and slow on many: a group that may hold line ends, say.
                self._by_chunk = False
                yield from (line[:MAX_LINE] for line in lines.text[position:].split("\n") if line)
                return
            if span is None:
                return
            touched, position = lines.touched(*span)
            yield from touched

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
