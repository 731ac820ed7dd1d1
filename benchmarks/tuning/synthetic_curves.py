"""Synthetic learning curves of trainings whose end has little to do with their beginning.

Each family has one hyperparameter for the final value and one for the speed, so that a strategy has something to find,
and noise on every report. A family is either for development or for the final figures.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuning.learning_curves import EPOCHS, Table, Values
from benchmarks.tuning.problem import continuous
from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.space import Space

Array = NDArray[np.float64]
Family = Callable[[float, float, np.random.Generator], Array]

_TRIALS = 240
_RANGES = (continuous("quality", 0.0, 1.0), continuous("speed", 0.0, 1.0))
_TIMES = np.arange(1, EPOCHS + 1, dtype=np.float64)


def synthetic_table(name: str) -> Table:
    family = {**DEVELOPMENT_CURVES, **FINAL_CURVES}[name]
    generator = np.random.default_rng([len(name), *name.encode()])
    space = Space(_RANGES)
    points: list[Values] = [space.decode(row) for row in space.sample(generator, _TRIALS)]
    curves = [family(_final(point), float(point["speed"]), generator) for point in points]
    return Table(
        name=name,
        direction=Direction.MINIMIZE,
        ranges=_RANGES,
        points=tuple(points),
        curves=tuple(tuple(float(value) for value in curve) for curve in curves),
    )


def _final(point: Values) -> float:
    """Return final values: best at a third of the range, and good only around there."""
    return 0.1 + 0.6 * abs(float(point["quality"]) - 0.35) + 0.1 * abs(float(point["speed"]) - 0.5)


def _power_laws(final: float, speed: float, generator: np.random.Generator) -> Array:
    curve = final + (1 - final) * _TIMES ** -(0.4 + 1.2 * speed)
    return curve + generator.normal(0, 0.01, EPOCHS)


def _overshooting(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Exponentials that are best half-way and then get worse again."""
    falling = final + (1 - final) * np.exp(-_TIMES / (1 + 8 * speed))
    return falling + 0.15 * (1 - speed) * np.maximum(0, _TIMES / EPOCHS - 0.4) + generator.normal(0, 0.01, EPOCHS)


def _late_drops(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Curves that are flat at first and drop sooner or later."""
    middle = 4 + 10 * speed
    return final + (1 - final) / (1 + (_TIMES / middle) ** 5) + generator.normal(0, 0.01, EPOCHS)


def _plateaus(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Plateaus caused by large steps until the rate falls, for all curves at the same two epochs."""
    drops = 0.35 * speed * (_TIMES < 10) + 0.15 * speed * (_TIMES < 19)
    return final + drops + (1 - final - drops) * np.exp(-_TIMES / 1.5) + generator.normal(0, 0.01, EPOCHS)


def _worse_first(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Curves that rise for some epochs, as with a warm-up that goes too far, and then fall."""
    hump = 0.5 * speed * (_TIMES / 4) * np.exp(1 - _TIMES / 4)
    return final + (0.8 - final) * np.exp(-_TIMES / 7) + hump + generator.normal(0, 0.01, EPOCHS)


def _noisy(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Curves whose noise is as large as the differences between good trials."""
    curve = final + (1 - final) * np.exp(-_TIMES / (1 + 10 * speed))
    return curve + generator.normal(0, 0.06, EPOCHS)


def _crossing(final: float, speed: float, generator: np.random.Generator) -> Array:
    """Curves that end better the slower they fall."""
    pace = 2 + 8 * max(0.0, 0.7 - final)
    return final + (1 - final) * np.exp(-_TIMES / pace) + 0.02 * speed + generator.normal(0, 0.01, EPOCHS)


DEVELOPMENT_CURVES: Mapping[str, Family] = {
    "power_laws": _power_laws,
    "overshooting": _overshooting,
    "late_drops": _late_drops,
}
FINAL_CURVES: Mapping[str, Family] = {
    "stepped": _plateaus,
    "worse_first": _worse_first,
    "noisy": _noisy,
    "crossing": _crossing,
}
