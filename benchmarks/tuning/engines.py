"""Every engine of the benchmark behind one small ask-and-tell interface."""

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from benchmarks.tuning.fingerprint import fingerprint
from benchmarks.tuning.peers import BoTorch, Ranges, SyneTune, optuna_cma, optuna_gp, optuna_tpe
from benchmarks.tuning.problem import Values
from benchmarks.tuning.scales import from_unit
from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperparameterRange,
    Objective,
    RangeKind,
    Scaling,
    StrategyKind,
    TrialStatus,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
)
from trainyard.insight.tuning.contract import Value


class Engine(Protocol):
    """Minimizes. Trials that were asked for and not yet told are pending."""

    def ask(self, number: int) -> Values:
        """Return the values of a trial. Trials are numbered from 1 in the order of their requests."""

    def tell(self, number: int, value: float | None) -> None:
        """Take the result of a trial; None if it failed."""

    def learn(self, number: int, values: Values, value: float) -> None:
        """Add a trial as if it had been asked for and told."""


class Trainyard:
    """Our Bayesian strategy, called as the yard calls it: the history as trials, the values as text."""

    def __init__(self, ranges: Ranges, *, seed: int, workers: int) -> None:
        definition = TuningDefinition("", Objective("loss", Direction.MINIMIZE), tuple(ranges))
        self._plan = TuningPlan(StrategyKind.BAYESIAN, (definition,), max_parallel=workers, seed=seed)
        self._kinds = {each.name: each.kind for each in ranges}
        self._trials: dict[int, TuningTrial] = {}
        self._advise = importlib.import_module("trainyard.insight.tuning.advice").advise

    def ask(self, number: int) -> Values:
        advice = self._advise(self._plan, list(self._trials.values()), parents={}, number=number)
        self._trials[number] = TuningTrial(number, str(number), "", advice.values, TrialStatus.IN_PROGRESS)
        return {name: _parse_value(text, self._kinds[name]) for name, text in advice.values.items()}

    def tell(self, number: int, value: float | None) -> None:
        status = TrialStatus.FAILED if value is None else TrialStatus.COMPLETED
        self._trials[number] = replace(self._trials[number], status=status, objective=value)

    def learn(self, number: int, values: Values, value: float) -> None:
        texts = {name: each if isinstance(each, str) else repr(each) for name, each in values.items()}
        self._trials[number] = TuningTrial(number, str(number), "", texts, TrialStatus.COMPLETED, objective=value)


class Random:
    """Uniform on the scale of each range."""

    def __init__(self, ranges: Ranges, *, seed: int, workers: int) -> None:  # noqa: ARG002
        self._ranges = ranges
        self._chance = np.random.default_rng(seed)

    def ask(self, number: int) -> Values:  # noqa: ARG002
        return {each.name: _from_chance(each, float(self._chance.random())) for each in self._ranges}

    def tell(self, number: int, value: float | None) -> None:
        pass

    def learn(self, number: int, values: Values, value: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Offer:
    """An engine that the benchmark can run, with the packages whose versions it depends on."""

    name: str
    title: str
    make: Callable[..., Engine]
    packages: tuple[str, ...] = ()
    seeds: int = 20

    @property
    def version(self) -> str:
        """The version that its results belong to: versions of packages, or a fingerprint of our source."""
        if self.make is Trainyard:
            return fingerprint("trainyard.insight.tuning.advice")
        # Without the part after "+": the same version built for another processor is the same engine.
        return " ".join(f"{name} {importlib.metadata.version(name).partition('+')[0]}" for name in self.packages)


ENGINES = (
    Offer("trainyard", "Trainyard", Trainyard),
    Offer("random", "random", Random, ("numpy",)),
    Offer("optuna-tpe", "Optuna TPE, multivariate", optuna_tpe, ("optuna",)),
    Offer("optuna-cma", "Optuna CMA-ES", optuna_cma, ("optuna", "cmaes")),
    Offer("optuna-gp", "Optuna GP", optuna_gp, ("optuna", "torch"), seeds=10),
    Offer("botorch", "BoTorch qLogNEI", BoTorch, ("botorch", "torch"), seeds=10),
    Offer("syne-tune", "Syne Tune BO", SyneTune, ("syne-tune", "botorch"), seeds=10),
)


def offer(name: str) -> Offer:
    return next(each for each in ENGINES if each.name == name)


def _parse_value(text: str, kind: RangeKind) -> Value:
    if kind is RangeKind.CATEGORICAL:
        return text
    return int(text) if kind is RangeKind.INTEGER else float(text)


def _from_chance(within: HyperparameterRange, share: float) -> Value:
    if within.values:
        return within.values[int(share * len(within.values))]
    if within.kind is RangeKind.INTEGER and within.scaling is Scaling.LINEAR:
        return int(within.low) + int(share * (within.high - within.low + 1))
    return from_unit(within, share)
