"""Learning curves of real trainings, computed once and stored beside this file, and synthetic ones.

    python -m benchmarks.tuning.learning_curves [--only NAME ...]

computes those of scikit-learn's data sets: 240 random hyperparameter settings each, 27 epochs, and the objective on a
third of the data after each. Looking one up is cheap, so many studies can run on them.

A task is either for development, when rules are designed and their constants are chosen, or for the final figures,
never for both.
"""

import argparse
import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.tuning.problem import categorical, logarithmic, logarithmic_integer
from trainyard.foundation.jobs.tuning import Direction, HyperparameterRange
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.space import Space

KEPT = Path(__file__).with_name("curves")
TRIALS, EPOCHS = 240, 27

Values = Mapping[str, Value]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """All possible trials of one task: hyperparameters, and the objective after each epoch."""

    name: str
    direction: Direction
    ranges: tuple[HyperparameterRange, ...]
    points: tuple[Values, ...]
    curves: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Split:
    inputs: Array
    targets: Array
    held_out: Array
    held_out_targets: Array


@dataclass(frozen=True, slots=True)
class Task:
    """A training whose learning curves are tabulated; `epochs` yields its objective after each epoch."""

    direction: Direction
    data: str  # function of sklearn.datasets
    ranges: tuple[HyperparameterRange, ...]
    epochs: Callable[[Values, Split], Iterator[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the learning curves of real trainings.")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    with ProcessPoolExecutor(arguments.processes) as pool:
        for name in arguments.only:
            points = [Space(TASKS[name].ranges).decode(row) for row in _rows(TASKS[name])]
            curves = list(pool.map(_curve, [name] * TRIALS, points, range(TRIALS), chunksize=4))
            trials = [{"values": point, "curve": curve} for point, curve in zip(points, curves, strict=True)]
            lines = ",\n".join(json.dumps(trial) for trial in trials)
            (KEPT / f"{name}.json").write_text(f"[\n{lines}\n]\n")
            print(f"{name}: {len(trials)} curves", flush=True)


def read_table(name: str) -> Table:
    """Return the tabulated learning curves of a real task."""
    trials = json.loads((KEPT / f"{name}.json").read_text())
    return Table(
        name=name,
        direction=TASKS[name].direction,
        ranges=TASKS[name].ranges,
        points=tuple(trial["values"] for trial in trials),
        curves=tuple(tuple(trial["curve"]) for trial in trials),
    )


def _rows(task: Task) -> Array:
    space = Space(task.ranges)
    return space.sample(np.random.default_rng(7), TRIALS)


def _curve(name: str, values: Values, seed: int) -> list[float]:
    task = TASKS[name]
    # scikit-learn draws from this generator if it gets none.
    np.random.seed(seed)
    reported: list[float] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.suppress(ValueError):
        # scikit-learn raises when weights are not finite.
        warnings.simplefilter("ignore")
        reported.extend(float(f"{value:.5g}") for value in task.epochs(values, _split(task.data)))
    return [*reported, *([float("nan")] * (EPOCHS - len(reported)))]


def _split(data: str) -> Split:
    import sklearn.datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    inputs, targets = getattr(sklearn.datasets, data)(return_X_y=True)
    if data == "load_diabetes":
        targets = (targets - targets.mean()) / targets.std()
    parts = train_test_split(inputs, targets, test_size=1 / 3, random_state=0)
    scaler = StandardScaler().fit(parts[0])
    return Split(scaler.transform(parts[0]), parts[2], scaler.transform(parts[1]), parts[3])


def _linear(loss: str, *, steps: tuple[int, ...] = ()) -> Callable[[Values, Split], Iterator[float]]:
    """A linear classifier with stochastic gradient descent; its rate falls to a tenth after each of `steps`."""

    def epochs(values: Values, split: Split) -> Iterator[float]:
        from sklearn.linear_model import SGDClassifier

        rate = float(values["rate"])
        schedule = str(values.get("schedule", "constant"))
        model = SGDClassifier(loss=loss, alpha=values["alpha"], learning_rate=schedule, eta0=rate, penalty="l2")
        for epoch in range(EPOCHS):
            model.set_params(eta0=rate * 0.1 ** sum(epoch >= step for step in steps))
            model.partial_fit(split.inputs, split.targets, classes=np.unique(split.targets))
            yield _accuracy(model, split) if loss == "hinge" else _log_loss(model, split)

    return epochs


def _network(kind: str, *, objective: Callable[[Any, Split], float]) -> Callable[[Values, Split], Iterator[float]]:
    """A network with one hidden layer, of the scikit-learn class with this name."""

    def epochs(values: Values, split: Split) -> Iterator[float]:
        import sklearn.neural_network

        model = getattr(sklearn.neural_network, kind)(
            hidden_layer_sizes=(int(values["hidden"]),),
            learning_rate_init=values["rate"],
            alpha=values["alpha"],
            batch_size=int(values["batch"]),
            solver=values["solver"],
        )
        known = {"classes": np.unique(split.targets)} if kind == "MLPClassifier" else {}
        for _ in range(EPOCHS):
            model.partial_fit(split.inputs, split.targets, **known)
            yield objective(model, split)

    return epochs


def _accuracy(model: Any, split: Split) -> float:
    return float(model.score(split.held_out, split.held_out_targets))


def _log_loss(model: Any, split: Split) -> float:
    from sklearn.metrics import log_loss

    return float(log_loss(split.held_out_targets, model.predict_proba(split.held_out), labels=model.classes_))


def _error(model: Any, split: Split) -> float:
    return float(np.sqrt(np.mean((model.predict(split.held_out) - split.held_out_targets) ** 2)))


_LINEAR = (logarithmic("rate", 1e-5, 1.0), logarithmic("alpha", 1e-7, 1e-1))
_SCHEDULED = (*_LINEAR, categorical("schedule", "constant", "invscaling", "adaptive"))
_NETWORK = (
    logarithmic("rate", 1e-5, 0.3),
    logarithmic("alpha", 1e-6, 1.0),
    logarithmic_integer("hidden", 4, 64),
    logarithmic_integer("batch", 8, 128),
    categorical("solver", "sgd", "adam"),
)

DEVELOPMENT: Mapping[str, Task] = {
    "linear_digits": Task(Direction.MAXIMIZE, "load_digits", _SCHEDULED, _linear("hinge")),
    "stepped_cancer": Task(Direction.MINIMIZE, "load_breast_cancer", _LINEAR, _linear("log_loss", steps=(12, 20))),
    "network_cancer": Task(
        Direction.MINIMIZE, "load_breast_cancer", _NETWORK, _network("MLPClassifier", objective=_log_loss)
    ),
}
FINAL: Mapping[str, Task] = {
    "network_digits": Task(Direction.MAXIMIZE, "load_digits", _NETWORK, _network("MLPClassifier", objective=_accuracy)),
    "network_wine": Task(Direction.MINIMIZE, "load_wine", _NETWORK, _network("MLPClassifier", objective=_log_loss)),
    "network_diabetes": Task(Direction.MINIMIZE, "load_diabetes", _NETWORK, _network("MLPRegressor", objective=_error)),
    "stepped_digits": Task(Direction.MAXIMIZE, "load_digits", _LINEAR, _linear("hinge", steps=(9, 18))),
    "linear_wine": Task(Direction.MINIMIZE, "load_wine", _SCHEDULED, _linear("log_loss")),
}
TASKS: Mapping[str, Task] = {**DEVELOPMENT, **FINAL}


if __name__ == "__main__":
    main()
