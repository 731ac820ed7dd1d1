"""Real trainings, tabulated once: results of cross-validation on a grid.

A table has one value for each combination of the nodes of its axes. The nodes of a numeric axis are evenly spaced on
the scale of its range and include its ends; a categorical axis has all its values. Values between nodes are
interpolated linearly on the scale of each range, so every engine sees the same continuous function, whose minimum is at
a node. `python -m benchmarks.tuning.tabulation` computes the tables again.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from benchmarks.tuning.problem import (
    Problem,
    Values,
    categorical,
    continuous,
    integer,
    logarithmic,
    logarithmic_integer,
)
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.insight.tuning.contract import Value

TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True, slots=True)
class Axis:
    """A hyperparameter and its number of nodes in the table."""

    within: HyperparameterRange
    count: int

    @property
    def nodes(self) -> tuple[Value, ...]:
        if self.within.kind is RangeKind.CATEGORICAL:
            return self.within.values
        return tuple(from_unit(self.within, i / (self.count - 1)) for i in range(self.count))


@dataclass(frozen=True)
class Task:
    """A training with its grid. The last axis varies fastest in the table."""

    name: str
    axes: tuple[Axis, ...]

    @cached_property
    def nodes(self) -> tuple[tuple[Value, ...], ...]:
        return tuple(axis.nodes for axis in self.axes)

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The measured values, node by node."""
        kept = json.loads((TABLES / f"{self.name}.json").read_text())
        assert kept["axes"] == {axis.within.name: list(axis.nodes) for axis in self.axes}, f"{self.name} has other axes"
        return tuple(kept["values"])

    @property
    def problem(self) -> Problem:
        least = min(range(len(self.values)), key=self.values.__getitem__)
        return Problem(self.name, tuple(axis.within for axis in self.axes), self.look_up, self.combination(least))

    def combination(self, index: int) -> Values:
        chosen: dict[str, Value] = {}
        for axis, nodes in zip(reversed(self.axes), reversed(self.nodes), strict=True):
            index, place = divmod(index, len(nodes))
            chosen[axis.within.name] = nodes[place]
        return chosen

    @property
    def combinations(self) -> Iterator[Values]:
        return (self.combination(index) for index in range(prod(len(nodes) for nodes in self.nodes)))

    def look_up(self, values: Values) -> float:
        corners = [
            _neighbours(axis, nodes, values[axis.within.name])
            for axis, nodes in zip(self.axes, self.nodes, strict=True)
        ]
        total = 0.0
        for corner in itertools.product(*corners):
            total += prod(weight for _, weight in corner) * self.values[self._index(place for place, _ in corner)]
        return total

    def _index(self, places: Iterator[int]) -> int:
        index = 0
        for place, nodes in zip(places, self.nodes, strict=True):
            index = index * len(nodes) + place
        return index


def _neighbours(axis: Axis, nodes: tuple[Value, ...], value: Value) -> list[tuple[int, float]]:
    """Return the indices of the nodes beside a value and their weights; none has weight 0."""
    if axis.within.kind is RangeKind.CATEGORICAL:
        return [(nodes.index(value), 1.0)]
    shares = [to_unit(axis.within, float(node)) for node in nodes]
    share = to_unit(axis.within, float(value))
    above = next(place for place, each in enumerate(shares) if each >= share or place == len(shares) - 1)
    if above == 0 or shares[above] <= share:
        return [(above, 1.0)]
    weight = (share - shares[above - 1]) / (shares[above] - shares[above - 1])
    return [pair for pair in ((above - 1, 1 - weight), (above, weight)) if pair[1] > 0]


def _categorical(name: str, *values: str) -> Axis:
    return Axis(categorical(name, *values), len(values))


TASKS = (
    Task(
        "svc_wine",
        (
            _categorical("kernel", "rbf", "poly", "sigmoid"),
            Axis(logarithmic("c", 1e-3, 1e3), 13),
            Axis(logarithmic("gamma", 1e-5, 1e1), 13),
        ),
    ),
    Task(
        "mlp_iris",
        (
            _categorical("activation", "relu", "tanh", "logistic"),
            Axis(logarithmic("rate", 1e-5, 1e-1), 9),
            Axis(logarithmic("alpha", 1e-6, 1e1), 5),
            Axis(logarithmic_integer("width", 2, 128), 5),
        ),
    ),
    Task(
        "svc_digits",
        (
            _categorical("kernel", "rbf", "poly", "sigmoid"),
            Axis(logarithmic("c", 1e-3, 1e3), 11),
            Axis(logarithmic("gamma", 1e-6, 1e0), 11),
        ),
    ),
    Task(
        "neighbours_digits",
        (
            Axis(logarithmic_integer("components", 2, 64), 9),
            _categorical("metric", "euclidean", "manhattan", "chebyshev"),
            _categorical("weights", "uniform", "distance"),
            Axis(logarithmic_integer("neighbours", 1, 64), 9),
        ),
    ),
    Task(
        "mlp_digits",
        (
            _categorical("activation", "relu", "tanh", "logistic"),
            Axis(logarithmic("rate", 1e-5, 1e0), 9),
            Axis(logarithmic("alpha", 1e-6, 1e1), 4),
            Axis(logarithmic_integer("width", 4, 128), 4),
        ),
    ),
    Task(
        "boosting_cancer",
        (
            Axis(logarithmic("rate", 1e-3, 1e0), 7),
            Axis(logarithmic_integer("leaves", 2, 32), 4),
            Axis(logarithmic("penalty", 1e-3, 1e3), 3),
            Axis(integer("least_samples", 2, 50), 3),
            Axis(logarithmic_integer("rounds", 1, 64), 7),
        ),
    ),
    Task(
        "linear_cancer",
        (
            _categorical("loss", "log_loss", "modified_huber", "hinge", "squared_hinge"),
            _categorical("penalty", "l1", "l2", "elasticnet"),
            Axis(logarithmic("alpha", 1e-7, 1e0), 8),
            Axis(logarithmic("rate", 1e-4, 1e1), 8),
        ),
    ),
    Task(
        "forest_diabetes",
        (
            _categorical("criterion", "squared_error", "friedman_mse"),
            _categorical("bootstrap", "yes", "no"),
            Axis(integer("depth", 1, 16), 6),
            Axis(continuous("features", 0.1, 1.0), 5),
            Axis(logarithmic_integer("least_samples", 1, 64), 7),
        ),
    ),
    Task(
        "boosting_diabetes",
        (
            _categorical("loss", "squared_error", "huber"),
            Axis(logarithmic("rate", 1e-3, 1e0), 7),
            Axis(integer("depth", 1, 5), 3),
            Axis(continuous("rows", 0.2, 1.0), 3),
            Axis(logarithmic_integer("rounds", 1, 64), 7),
        ),
    ),
    Task(
        "elastic_net_diabetes",
        (
            _categorical("degree", "1", "2"),
            _categorical("scaled", "standard", "quantiles", "no"),
            Axis(logarithmic("alpha", 1e-4, 1e2), 13),
            Axis(continuous("share", 0.0, 1.0), 9),
        ),
    ),
)

_DEVELOPED_ON = ("svc_wine", "mlp_iris")
DEVELOPMENT_TASKS = tuple(task for task in TASKS if task.name in _DEVELOPED_ON)
FINAL_TASKS = tuple(task for task in TASKS if task.name not in _DEVELOPED_ON)
