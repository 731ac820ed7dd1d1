"""Hyperparameters as lines from 0 to 1 with marks, so that charts need not know of scales and categories."""

from dataclasses import dataclass

import numpy as np

from trainyard.insight.tuning.axes import Axis
from trainyard.insight.tuning.contract import Value

_MARKS = 5


@dataclass(frozen=True, slots=True)
class Mark:
    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Ruler:
    """One hyperparameter. Numbers lie where their scale has them, categories at equal distances."""

    axis: Axis

    @property
    def name(self) -> str:
        return self.axis.name

    @property
    def is_categorical(self) -> bool:
        return self.axis.is_categorical

    def place(self, value: Value) -> float | None:
        """Where a value lies; None where it is none of this hyperparameter."""
        coordinate = self.axis.coordinate(value)
        if coordinate is None or not self.is_categorical:
            return coordinate
        assert self.axis.count is not None, "categories are counted"
        return (coordinate + 0.5) / self.axis.count

    def places(self, most: int) -> list[float]:
        """Places all along the ruler: those of all values where these are few, else evenly spread ones."""
        count = self.axis.count
        if count is not None and count <= most:
            found = [self.place(self.axis.nth(index)) for index in range(count)]
            return [place for place in found if place is not None]
        return [float(place) for place in np.linspace(0.0, 1.0, most)]

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Places with what is there: all categories, and some numbers."""
        if self.is_categorical:
            values: list[Value] = [self.axis.nth(index) for index in range(self.axis.count or 0)]
        else:
            values = list(dict.fromkeys(self.axis.value(float(place)) for place in np.linspace(0.0, 1.0, _MARKS)))
        placed = [(self.place(value), value) for value in values]
        return tuple(Mark(place, _label(value)) for place, value in placed if place is not None)


def _label(value: Value) -> str:
    if isinstance(value, str):
        return value.strip('"')
    return f"{value:.3g}" if isinstance(value, float) else str(value)
