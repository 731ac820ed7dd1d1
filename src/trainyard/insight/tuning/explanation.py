"""Explains a search to its user: what it would try next and why, and what the hyperparameters do to the objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from trainyard.foundation.jobs.tuning import (
    Direction,
    HyperparameterRange,
    RangeKind,
    StrategyKind,
    TuningDefinition,
    TuningPlan,
    TuningTrial,
)
from trainyard.insight.tuning.advice import Advice, advise, chooses_initially
from trainyard.insight.tuning.chart_axes import ChartAxis, Tick
from trainyard.insight.tuning.completion import measured_value
from trainyard.insight.tuning.history import thin_observations, to_observations
from trainyard.insight.tuning.hyperband import Hyperband
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.surface import (
    Importance,
    JointPartialDependence,
    PartialDependence,
    Prediction,
    Surface,
    surface_of,
)

# The time of a fit grows with their cube.
MAX_FITTED_TRIALS = 200
# A difference in a number that a reader would call another value.
_MIN_DIFFERENCE = 0.05
_MAX_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class ExplainedAdvice:
    """What a strategy would try next, and why. Figures that no model knows are None.

    `expected` and `deviation` are the model's prediction of the objective, `chance` that of becoming the best trial.
    """

    definition: str
    values: Mapping[str, str]
    reasons: Sequence[str]
    expected: float | None = None
    deviation: float | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class SurveyedAxis:
    """One hyperparameter: its chart axis, and the partial dependence of the objective on it."""

    name: str
    is_categorical: bool
    ticks: Sequence[Tick]
    dependence: PartialDependence


@dataclass(frozen=True, slots=True)
class Survey:
    """How the objective of a definition depends on its hyperparameters, as the measured trials show it.

    `explained` is the share of the trials' variance that the model explains. `joint` is over two axes.
    """

    definition: str
    fitted_trials: int
    explained: float
    importances: Sequence[Importance]
    axes: Sequence[SurveyedAxis]
    joint_names: tuple[str, str] | None = None
    joint: JointPartialDependence | None = None


def explain_advice(
    plan: TuningPlan, trials: Sequence[TuningTrial], *, parents: Mapping[str, Sequence[TuningTrial]], number: int
) -> ExplainedAdvice | None:
    """Return what the trial with this number would try, and why; None when nothing is left to try."""
    advice = advise(plan, trials, parents=parents, number=number)
    if advice is None:
        return None
    definition = plan.definition(advice.definition)
    if plan.strategy is StrategyKind.GRID:
        return ExplainedAdvice(advice.definition, advice.values, _grid_reasons(definition, trials))
    if plan.strategy is StrategyKind.RANDOM:
        text = "Random search draws every value anew within its range, whatever other trials have found."
        return ExplainedAdvice(advice.definition, advice.values, [text])
    if chooses_initially(plan, definition, trials, parents=parents):
        text = "Too little is known for a model, so the first trials are spread over the whole space."
        explained = ExplainedAdvice(advice.definition, advice.values, [text])
    else:
        explained = _explain_by_model(plan, definition, advice=advice, trials=trials)
    return replace(explained, reasons=[*explained.reasons, *_bracket_reasons(plan, definition, number)])


def survey_trials(
    plan: TuningPlan, trials: Sequence[TuningTrial], *, definition: str, names: tuple[str, str] | None = None
) -> Survey | None:
    """Return how the objective depends on the hyperparameters; None if there are too few trials to tell.

    `names` are the two hyperparameters of the joint dependence; by default, the two most important ones.
    """
    tuned = plan.definition(definition)
    fitted = _evenly_spaced(_measured_trials(tuned, trials))
    surface = _fit(tuned, fitted)
    if surface is None:
        return None
    importances = surface.importances()
    joint_names = _joint_names(surface, importances, names)
    return Survey(
        definition,
        len(fitted),
        surface.explained,
        importances,
        [_survey_axis(surface, axis) for axis in surface.chart_axes],
        joint_names,
        surface.joint_partial_dependence(*joint_names) if joint_names else None,
    )


def _joint_names(
    surface: Surface, importances: Sequence[Importance], names: tuple[str, str] | None
) -> tuple[str, str] | None:
    known = {axis.name for axis in surface.chart_axes}
    if names is not None and names[0] != names[1] and known.issuperset(names):
        return names
    first = [each.name for each in importances[:2]]
    return (first[0], first[1]) if len(first) == 2 else None


def _survey_axis(surface: Surface, axis: ChartAxis) -> SurveyedAxis:
    return SurveyedAxis(axis.name, axis.is_categorical, axis.ticks, surface.partial_dependence(axis.name))


def _measured_trials(definition: TuningDefinition, trials: Sequence[TuningTrial]) -> list[TuningTrial]:
    return [each for each in trials if each.definition == definition.name and measured_value(each) is not None]


def _evenly_spaced(trials: Sequence[TuningTrial]) -> list[TuningTrial]:
    """Return trials that stand for all of them. A model of mostly good ones would know little about the rest."""
    count = min(len(trials), MAX_FITTED_TRIALS)
    return [trials[index * len(trials) // count] for index in range(count)]


def _mostly_good(definition: TuningDefinition, trials: Sequence[TuningTrial]) -> list[TuningTrial]:
    """Return the better trials, and others between them, for a prediction where strategies search."""
    observations = to_observations(trials, Space(definition.ranges))
    thinned = thin_observations(observations, MAX_FITTED_TRIALS, direction=definition.objective.direction)
    kept = {id(each) for each in thinned}
    return [trial for trial, each in zip(trials, observations, strict=True) if id(each) in kept]


def _fit(definition: TuningDefinition, measured: Sequence[TuningTrial]) -> Surface | None:
    values = [value for each in measured if (value := measured_value(each)) is not None]
    is_maximized = definition.objective.direction is Direction.MAXIMIZE
    return surface_of(definition.ranges, [each.values for each in measured], values, is_maximized=is_maximized)


def _grid_reasons(definition: TuningDefinition, trials: Sequence[TuningTrial]) -> list[str]:
    size = Space(definition.ranges).size
    tried = len({tuple(sorted(each.values.items())) for each in trials if each.definition == definition.name})
    total = f" of {size:,}" if size is not None else ""
    return [f"The grid is tried in random order, so that it covers everything early: {tried:,}{total} were tried."]


def _explain_by_model(
    plan: TuningPlan,
    definition: TuningDefinition,
    *,
    advice: Advice,
    trials: Sequence[TuningTrial],
) -> ExplainedAdvice:
    own = [each for each in trials if each.definition == definition.name]
    measured = _measured_trials(definition, trials)
    is_maximized = definition.objective.direction is Direction.MAXIMIZE
    best = min(measured, key=lambda each: _loss(each, is_maximized=is_maximized), default=None)
    surface = _fit(definition, _mostly_good(definition, measured))
    prediction = surface.predict(advice.values) if surface is not None else None
    if best is None or prediction is None:
        text = "The model knows too few trials of this tuning job for a prediction."
        if plan.warm_start:
            text = f"{text} It learns from those of its parents."
        return ExplainedAdvice(advice.definition, advice.values, [text])
    best_value = measured_value(best)
    assert best_value is not None, "it is measured"
    gain = prediction.mean - best_value if is_maximized else best_value - prediction.mean
    chance = NormalDist(0.0, max(prediction.deviation, 1e-300)).cdf(gain)
    reasons = [
        _prediction_reason(definition, prediction, best=best, best_value=best_value, gain=gain),
        *_difference_reasons(definition, advice.values, best),
    ]
    running = sum(not each.has_ended for each in own)
    if running:
        reasons.append(
            f"{'One trial' if running == 1 else f'{running} trials'} still running: a new result may change this."
        )
    return ExplainedAdvice(
        advice.definition, advice.values, reasons, prediction.mean, prediction.deviation, min(max(chance, 0.0), 1.0)
    )


def _bracket_reasons(plan: TuningPlan, definition: TuningDefinition, number: int) -> list[str]:
    """Say where Hyperband would compare a trial with others, which its number decides."""
    if plan.strategy is not StrategyKind.HYPERBAND or plan.resources is None:
        return []
    hyperband = Hyperband(definition.objective, plan.resources)
    rungs = ", ".join(map(str, hyperband.rungs(number)))
    told = f"after {rungs} reports, it continues if it is in the best third" if rungs else "it runs to its end"
    return [f"It is in bracket {hyperband.bracket(number)} of Hyperband: {told}."]


def _loss(trial: TuningTrial, *, is_maximized: bool) -> float:
    value = measured_value(trial)
    assert value is not None, "only measured trials are compared"
    return -value if is_maximized else value


def _prediction_reason(
    definition: TuningDefinition, prediction: Prediction, *, best: TuningTrial, best_value: float, gain: float
) -> str:
    metric = definition.objective.metric
    told = (
        f"The model expects {metric} {prediction.mean:.4g}, give or take {prediction.deviation:.2g}; "
        f"the best so far is {best_value:.4g}, trial {best.number}."
    )
    if gain > 0:
        return f"{told} A better result is expected here."
    if prediction.deviation > -gain:
        return f"{told} Little is known here, so it may well be better than expected."
    return f"{told} It is tried to learn about this part of the space."


def _difference_reasons(definition: TuningDefinition, values: Mapping[str, str], best: TuningTrial) -> list[str]:
    """Say in what a suggestion differs from the best trial."""
    differing = [
        f"{each.name} {_short(values[each.name])} instead of {_short(best.values[each.name])}"
        for each in definition.ranges
        if each.name in values
        and each.name in best.values
        and _differs(each, values[each.name], best.values[each.name])
    ]
    if not differing:
        return [f"It is close to trial {best.number}, the best so far."]
    shown = ", ".join(differing[:_MAX_DIFFERENCES])
    more = f" and {len(differing) - _MAX_DIFFERENCES} more" if len(differing) > _MAX_DIFFERENCES else ""
    return [f"Compared with trial {best.number}: {shown}{more}."]


def _differs(searched: HyperparameterRange, one: str, other: str) -> bool:
    axis = next((each for each in Space([searched]).axes), None)
    if axis is None:
        return False
    values = [Space([searched]).values({searched.name: text}).get(searched.name) for text in (one, other)]
    places = [axis.coordinate(value) if value is not None else None for value in values]
    if places[0] is None or places[1] is None:
        return one != other
    if searched.kind is RangeKind.CATEGORICAL:
        return places[0] != places[1]
    return math.fabs(places[0] - places[1]) > _MIN_DIFFERENCE


def _short(text: str) -> str:
    """Return a value as people write it: numbers with four digits, categories without JSON's quotes."""
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text.strip('"')
