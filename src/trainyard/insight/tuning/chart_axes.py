"""Chart axes of hyperparameters, from 0 to 1 with ticks, so that charts need not handle scales and categories."""

from dataclasses import dataclass

import numpy as np

from trainyard.insight.tuning.axes import SearchAxis
from trainyard.insight.tuning.contract import Value

_TICKS = 5


@dataclass(frozen=True, slots=True)
class Tick:
    position: float
    label: str


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """The chart axis of one hyperparameter: numbers on their scale, categories at equal distances."""

    axis: SearchAxis

    @property
    def name(self) -> str:
        return self.axis.name

    @property
    def is_categorical(self) -> bool:
        return self.axis.is_categorical

    def position(self, value: Value) -> float | None:
        """Return the position of a value; None if the hyperparameter cannot have it."""
        coordinate = self.axis.coordinate(value)
        if coordinate is None or not self.is_categorical:
            return coordinate
        assert self.axis.count is not None, "categorical axes have a count"
        return (coordinate + 0.5) / self.axis.count

    def positions(self, most: int) -> list[float]:
        """Return the positions of all values if there are at most `most`, else evenly spaced positions."""
        count = self.axis.count
        if count is not None and count <= most:
            found = [self.position(self.axis.nth(index)) for index in range(count)]
            return [position for position in found if position is not None]
        return [float(position) for position in np.linspace(0.0, 1.0, most)]

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Ticks at all categories, or at some numbers."""
        if self.is_categorical:
            values: list[Value] = [self.axis.nth(index) for index in range(self.axis.count or 0)]
        else:
            values = list(dict.fromkeys(self.axis.value(float(position)) for position in np.linspace(0.0, 1.0, _TICKS)))
        located = [(self.position(value), value) for value in values]
        return tuple(Tick(position, _label(value)) for position, value in located if position is not None)


def _label(value: Value) -> str:
    if isinstance(value, str):
        return value.strip('"')
    return f"{value:.3g}" if isinstance(value, float) else str(value)
