"""The plan of a tuning job: how it searches, how far, and when it stops, read from a request and checked."""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.tuning import (
    Completion,
    Definition,
    EarlyStopping,
    RangeKind,
    Resources,
    StrategyKind,
    TuningPlan,
    WarmStart,
)
from trainyard.insight.tuning.autotune import autotuned
from trainyard.insight.tuning.hyperband import EPOCHS, MOST_REPORTS, resources_of
from trainyard.server.services.sagemaker.tuning.definitions import named
from trainyard.server.services.sagemaker.tuning.ranges import combinations

MOST_TRIALS = 10_000
MOST_PARALLEL = 1_000

# Tags by which a request says what the shapes of AWS have no member for.
EARLY_STOPPING_TAG, PRUNING_TAG = "trainyard:early-stopping", "trainyard:prune-on"

_SEEDS = 2**31
_EARLY_WORDS = {"curve": EarlyStopping.CURVE, "auto": EarlyStopping.MEDIAN, "off": EarlyStopping.OFF}


def plan_of(
    config: Mapping[str, Any],
    definitions: tuple[Definition, ...],
    *,
    tags: Mapping[str, str],
    warm_start: WarmStart | None = None,
    is_autotuned: bool = False,
) -> TuningPlan:
    """What HyperParameterTuningJobConfig and the tags ask for. InvalidRequest when that does not go together.

    What they leave open is chosen for a tuning job that is autotuned.
    """
    strategy, limits = StrategyKind(config["Strategy"]), config["ResourceLimits"]
    early_stopping = _early_stopping(config, tags)
    if strategy is StrategyKind.HYPERBAND and early_stopping is not EarlyStopping.OFF:
        raise InvalidRequest("Hyperband ends training jobs by itself; set TrainingJobEarlyStoppingType to Off.")
    plan = TuningPlan(
        strategy=strategy,
        definitions=definitions,
        max_parallel=_within(limits["MaxParallelTrainingJobs"], MOST_PARALLEL, "MaxParallelTrainingJobs"),
        max_trials=_max_trials(limits, strategy, definitions=definitions),
        max_runtime_s=limits.get("MaxRuntimeInSeconds"),
        seed=config.get("RandomSeed", secrets.randbelow(_SEEDS)),
        early_stopping=early_stopping,
        resources=_resources(config, strategy, definitions=definitions),
        completion=_completion(config.get("TuningJobCompletionCriteria", {})),
        warm_start=warm_start,
        pruning_rules=_pruning_rules(tags),
    )
    plan = autotuned(plan, given=set(_given(config, tags))) if is_autotuned else plan
    _require_end(plan)
    return plan


def _given(config: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[str]:
    """The fields of the plan that the request decides."""
    yield "strategy"
    if "TrainingJobEarlyStoppingType" in config or EARLY_STOPPING_TAG in tags:
        yield "early_stopping"
    if "MaxNumberOfTrainingJobs" in config["ResourceLimits"]:
        yield "max_trials"
    if "TuningJobCompletionCriteria" in config:
        yield "completion"


def _require_end(plan: TuningPlan) -> None:
    if plan.max_trials is None and plan.max_runtime_s is None and plan.completion == Completion():
        raise InvalidRequest(
            "Nothing ends this tuning job; give MaxNumberOfTrainingJobs or MaxRuntimeInSeconds in ResourceLimits, or "
            "TuningJobCompletionCriteria."
        )


def _completion(criteria: Mapping[str, Any]) -> Completion:
    target = criteria.get("TargetObjectiveMetricValue")
    if target is not None and not math.isfinite(target):
        raise InvalidRequest(f"TargetObjectiveMetricValue is {target}; it must be a finite number.")
    return Completion(
        target=target,
        most_without_improvement=criteria.get("BestObjectiveNotImproving", {}).get(
            "MaxNumberOfTrainingJobsNotImproving"
        ),
        on_convergence=criteria.get("ConvergenceDetected", {}).get("CompleteOnConvergence") == "Enabled",
    )


def _early_stopping(config: Mapping[str, Any], tags: Mapping[str, str]) -> EarlyStopping:
    """The tag decides where there is one: SDKs send Off for whoever says nothing."""
    word = tags.get(EARLY_STOPPING_TAG)
    if word is None:
        return EarlyStopping(config.get("TrainingJobEarlyStoppingType", "Off"))
    if word.lower() not in _EARLY_WORDS:
        raise InvalidRequest(f'The tag {EARLY_STOPPING_TAG} is "{word}"; it is one of {", ".join(_EARLY_WORDS)}.')
    return _EARLY_WORDS[word.lower()]


def _max_trials(limits: Mapping[str, Any], strategy: StrategyKind, *, definitions: Sequence[Definition]) -> int | None:
    asked: int | None = limits.get("MaxNumberOfTrainingJobs")
    if strategy is StrategyKind.GRID:
        return _within(_grid_size(definitions, asked), MOST_TRIALS, "The number of combinations of a Grid")
    return None if asked is None else _within(asked, MOST_TRIALS, "MaxNumberOfTrainingJobs")


def _grid_size(definitions: Sequence[Definition], asked: int | None) -> int:
    numeric = [each.name for one in definitions for each in one.ranges if each.kind is not RangeKind.CATEGORICAL]
    if numeric:
        raise InvalidRequest(
            f"Grid tries every combination of values, so that it needs CategoricalParameterRanges only; give "
            f"{', '.join(numeric)} as categories, or choose another strategy."
        )
    total = sum(combinations(one.ranges) or 0 for one in definitions)
    if asked is not None and asked != total:
        raise InvalidRequest(
            f"Grid tries every combination, of which there are {total}, but MaxNumberOfTrainingJobs is {asked}; leave "
            f"it out, or set it to {total}."
        )
    return total


def _within(number: int, most: int, what: str) -> int:
    if number > most:
        raise InvalidRequest(f"{what} is {number}; at most {most} are possible.")
    return number


def _resources(
    config: Mapping[str, Any], strategy: StrategyKind, *, definitions: Sequence[Definition]
) -> Resources | None:
    given = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig")
    if strategy is not StrategyKind.HYPERBAND:
        if given is not None:
            raise InvalidRequest(f"HyperbandStrategyConfig is only for the strategy Hyperband, not for {strategy}.")
        return None
    least, most = (given or {}).get("MinResource"), (given or {}).get("MaxResource")
    _require_resources(least, most)
    found = {resources_of(each.static, least=least, most=most): each for each in definitions}
    if None in found:
        raise InvalidRequest(
            f"{named(found[None])} does not tell how long a training job may be; give MaxResource in "
            f"HyperbandStrategyConfig, or one of {', '.join(EPOCHS)} among the StaticHyperParameters."
        )
    if len(found) > 1:
        raise InvalidRequest(
            "The training job definitions have different numbers of epochs; give MaxResource in "
            "HyperbandStrategyConfig, which holds for all."
        )
    (resources,) = found
    return resources


def _require_resources(least: int | None, most: int | None) -> None:
    if most is not None and most > MOST_REPORTS:
        raise InvalidRequest(f"MaxResource is {most}; at most {MOST_REPORTS} are possible.")
    if least is not None and most is not None and least > most:
        raise InvalidRequest(f"MinResource is {least}, which is more than the MaxResource of {most}; lower it.")


def _pruning_rules(tags: Mapping[str, str]) -> tuple[str, ...]:
    rules = tuple(dict.fromkeys(tags.get(PRUNING_TAG, "").split()))
    if not rules:
        return ()
    from trainyard.insight.rules.catalog import make_rule  # which brings numpy, that a yard without rules never needs

    for word in rules:
        try:
            rule = make_rule(word, {})
        except InvalidRequest as error:
            raise InvalidRequest(f"The tag {PRUNING_TAG} names a rule that cannot prune: {error.message}") from error
        if any(need.is_raw for need in rule.needs.parts):
            raise InvalidRequest(
                f"The tag {PRUNING_TAG} names {word}, which looks at values of tensors and not at their statistics; "
                "only rules on statistics can prune, such as NotANumber, LossNotDecreasing or ExplodingTensor."
            )
    return rules
