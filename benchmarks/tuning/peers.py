"""Other engines, with the settings that their authors recommend.

Their libraries are imported only when an engine is created, because they are in an environment of their own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.tuning.problem import Values
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.contract import Value

Ranges = Sequence[HyperparameterRange]


class Optuna:
    """A study in memory with one of Optuna's samplers. Ranges that are reverse-logarithmic are given as 1 - x."""

    def __init__(self, ranges: Ranges, *, sampler: Any) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._states, self._frozen = optuna.trial.TrialState, optuna.trial.create_trial
        self._ranges = ranges
        self._distributions = {each.name: _distribution(each) for each in ranges}
        self._study = optuna.create_study(sampler=sampler, direction="minimize")
        self._trials: dict[int, Any] = {}

    def ask(self, number: int) -> Values:
        trial = self._trials[number] = self._study.ask(self._distributions)
        return {each.name: _from_peer(each, trial.params[each.name]) for each in self._ranges}

    def tell(self, number: int, value: float | None) -> None:
        trial = self._trials.pop(number)
        if value is None:
            self._study.tell(trial, state=self._states.FAIL)
        else:
            self._study.tell(trial, value)

    def learn(self, number: int, values: Values, value: float) -> None:  # noqa: ARG002
        given = {each.name: _to_peer(each, values[each.name]) for each in self._ranges}
        trial = self._frozen(params=given, distributions=self._distributions, value=value)
        self._study.add_trial(trial)


def optuna_tpe(ranges: Ranges, *, seed: int, workers: int) -> Optuna:  # noqa: ARG001
    """Multivariate, and with the constant liar for pending trials, as Optuna's guide recommends."""
    from optuna.samplers import TPESampler

    return Optuna(ranges, sampler=TPESampler(seed=seed, multivariate=True, constant_liar=True))


def optuna_gp(ranges: Ranges, *, seed: int, workers: int) -> Optuna:  # noqa: ARG001
    from optuna.samplers import GPSampler

    return Optuna(ranges, sampler=GPSampler(seed=seed))


def optuna_cma(ranges: Ranges, *, seed: int, workers: int) -> Optuna:  # noqa: ARG001
    """CMA-ES for the numbers; what it cannot represent, such as categories, Optuna draws at random."""
    from optuna.samplers import CmaEsSampler

    return Optuna(ranges, sampler=CmaEsSampler(seed=seed, warn_independent_sampling=False))


class BoTorch:
    """The noisy expected improvement (qLogNEI) of a Gaussian process, with pending trials, on the unit cube.

    It starts with a Sobol sequence of the length that Ax would use: twice the dimensions, at least 5, at most a fifth
    of 50. Categories have a kernel of their own; integers are rounded. BoTorch cannot represent failed trials, so they
    count as the worst measured value.
    """

    def __init__(self, ranges: Ranges, *, seed: int, workers: int) -> None:  # noqa: ARG002
        import torch
        from torch.quasirandom import SobolEngine

        torch.manual_seed(seed)
        self._ranges = ranges
        self._categories = {i: len(each.values) for i, each in enumerate(ranges) if each.values}
        self._sobol = SobolEngine(len(ranges), scramble=True, seed=seed)
        self._initial = min(max(5, 2 * len(ranges)), 10)
        self._points: dict[int, list[float]] = {}
        self._told: dict[int, float | None] = {}
        self._state: dict[str, Any] = {}  # of the last fit, from which the next begins, as in Ax

    def ask(self, number: int) -> Values:
        measured = sum(value is not None for value in self._told.values())
        point = self._draw() if number <= self._initial or measured < 2 else self._improve()
        values = {each.name: self._decode(each, share) for each, share in zip(self._ranges, point, strict=True)}
        # Rounded as it will be tried, so that the model learns from the measured point.
        self._points[number] = [self._encode(each, values[each.name]) for each in self._ranges]
        return values

    def tell(self, number: int, value: float | None) -> None:
        self._told[number] = value

    def learn(self, number: int, values: Values, value: float) -> None:
        self._points[number] = [self._encode(each, values[each.name]) for each in self._ranges]
        self._told[number] = value

    def _draw(self) -> list[float]:
        shares = self._sobol.draw(1)[0].tolist()
        return [
            min(int(share * self._categories[i]), self._categories[i] - 1) if i in self._categories else share
            for i, share in enumerate(shares)
        ]

    def _improve(self) -> list[float]:
        import torch
        from botorch.acquisition.logei import qLogNoisyExpectedImprovement
        from botorch.exceptions import ModelFittingError

        try:
            model, known = self._fit()
        except ModelFittingError:
            return self._draw()
        pending = [point for number, point in self._points.items() if number not in self._told]
        better = qLogNoisyExpectedImprovement(
            model,
            X_baseline=known,
            X_pending=torch.tensor(pending, dtype=torch.double) if pending else None,
            prune_baseline=True,
        )
        return [float(each) for each in self._best_of(better)]

    def _fit(self) -> tuple[Any, Any]:
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import MixedSingleTaskGP, SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        worst = max(value for value in self._told.values() if value is not None)
        x = torch.tensor([self._points[number] for number in self._told], dtype=torch.double)
        y = torch.tensor([[-(worst if value is None else value)] for value in self._told.values()], dtype=torch.double)
        model = MixedSingleTaskGP(x, y, cat_dims=list(self._categories)) if self._categories else SingleTaskGP(x, y)
        model.load_state_dict(self._state, strict=False)
        # With categories, a fit to 30 observations takes 8 s without this limit and 0.6 s with it.
        fit_gpytorch_mll(
            ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 50}}
        )
        self._state = {name: each for name, each in model.state_dict().items() if not name.startswith("outcome")}
        return model, x

    def _best_of(self, acquisition: Any) -> Any:
        import torch
        from botorch.optim import optimize_acqf, optimize_acqf_mixed_alternating

        highest = [float(self._categories.get(i, 2) - 1) for i in range(len(self._ranges))]
        bounds = torch.tensor([[0.0] * len(highest), highest], dtype=torch.double)
        options = {"q": 1, "num_restarts": 4, "raw_samples": 256}
        if not self._categories:
            return optimize_acqf(acquisition, bounds, **options)[0][0]
        categories = {i: [float(each) for each in range(count)] for i, count in self._categories.items()}
        return optimize_acqf_mixed_alternating(acquisition, bounds, cat_dims=categories, **options)[0][0]

    @staticmethod
    def _encode(within: HyperparameterRange, value: Value) -> float:
        if within.values:
            return float(within.values.index(str(value)))
        return to_unit(within, float(value))

    @staticmethod
    def _decode(within: HyperparameterRange, share: float) -> Value:
        return within.values[round(share)] if within.values else from_unit(within, share)


class SyneTune:
    """Syne Tune's Gaussian process, which is BoTorch's with one-hot categories and qLogEI.

    Two defects of version 0.16.0 are corrected here, without which it would do worse. It pairs configurations in the
    order of suggestion with values in the order of arrival, which differ when trials run in parallel. And a failed
    trial leaves a configuration without a value, after which every suggestion is random. Here, values are kept in the
    order of suggestion, and a failed trial counts as the worst measured value.
    """

    def __init__(self, ranges: Ranges, *, seed: int, workers: int) -> None:  # noqa: ARG002
        from syne_tune.optimizer.schedulers.searchers.botorch.botorch_searcher import BoTorchSearcher

        np.random.seed(seed)
        self._ranges = ranges
        self._searcher = BoTorchSearcher({each.name: _domain(each) for each in ranges}, random_seed=seed)
        self._failed: list[int] = []

    def ask(self, number: int) -> Values:  # noqa: ARG002
        suggested = self._searcher.suggest()
        return {each.name: _from_peer(each, suggested[each.name]) for each in self._ranges}

    def tell(self, number: int, value: float | None) -> None:
        observed = self._searcher.trial_observations
        if value is None:
            self._failed.append(number - 1)
        else:
            self._searcher.on_trial_complete(number - 1, {}, value)
        for trial in self._failed if len(observed) > len(self._failed) else ():
            worst = max(known for each, known in observed.items() if each not in self._failed)
            self._searcher.on_trial_complete(trial, {}, worst)
        self._searcher.trial_observations = dict(sorted(observed.items()))

    def learn(self, number: int, values: Values, value: float) -> None:
        self._searcher.trial_configs[number - 1] = {
            each.name: _to_peer(each, values[each.name]) for each in self._ranges
        }
        self._searcher.on_trial_complete(number - 1, {}, value)


def _distribution(within: HyperparameterRange) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if within.values:
        return CategoricalDistribution(within.values)
    is_logarithmic = within.scaling is Scaling.LOGARITHMIC
    if within.kind is RangeKind.INTEGER:
        return IntDistribution(int(within.low), int(within.high), log=is_logarithmic)
    if within.scaling is Scaling.REVERSE_LOGARITHMIC:
        return FloatDistribution(1 - within.high, 1 - within.low, log=True)
    return FloatDistribution(within.low, within.high, log=is_logarithmic)


def _domain(within: HyperparameterRange) -> Any:
    from syne_tune import config_space

    if within.values:
        return config_space.choice(list(within.values))
    is_logarithmic = within.scaling is Scaling.LOGARITHMIC
    if within.kind is RangeKind.INTEGER:
        draw = config_space.lograndint if is_logarithmic else config_space.randint
        return draw(int(within.low), int(within.high))
    if within.scaling is Scaling.REVERSE_LOGARITHMIC:
        return config_space.loguniform(1 - within.high, 1 - within.low)
    return (config_space.loguniform if is_logarithmic else config_space.uniform)(within.low, within.high)


def _from_peer(within: HyperparameterRange, value: Any) -> Value:
    if within.values:
        return str(value)
    if within.kind is RangeKind.INTEGER:
        return int(value)
    number = 1 - float(value) if within.scaling is Scaling.REVERSE_LOGARITHMIC else float(value)
    return min(max(number, within.low), within.high)


def _to_peer(within: HyperparameterRange, value: Value) -> Value:
    return 1 - float(value) if within.scaling is Scaling.REVERSE_LOGARITHMIC else value
