"""The plan of a tuning job, parsed from its request: strategy, limits, early stopping, completion."""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import (
    CompletionCriteria,
    EarlyStopping,
    HyperbandResources,
    RangeKind,
    StrategyKind,
    TuningDefinition,
    TuningPlan,
    WarmStart,
)
from trainyard.insight.tuning.autotune import apply_autotune
from trainyard.insight.tuning.hyperband import EPOCH_HYPERPARAMETERS, MAX_REPORTS, resources_of
from trainyard.server.services.sagemaker.tuning.definitions import definition_label
from trainyard.server.services.sagemaker.tuning.ranges import combinations

MAX_TRIALS = 10_000
MAX_PARALLEL = 1_000

# Tags for settings that AWS's shapes have no members for.
EARLY_STOPPING_TAG, PRUNING_TAG = "trainyard:early-stopping", "trainyard:prune-on"

_SEED_COUNT = 2**31
_EARLY_STOPPING_WORDS = {"curve": EarlyStopping.CURVE, "auto": EarlyStopping.MEDIAN, "off": EarlyStopping.OFF}


def plan_of(
    config: Mapping[str, Any],
    definitions: tuple[TuningDefinition, ...],
    *,
    tags: Mapping[str, str],
    warm_start: WarmStart | None = None,
    is_autotuned: bool = False,
) -> TuningPlan:
    """Return the plan that HyperParameterTuningJobConfig and the tags ask for; InvalidRequest if they conflict.

    With Autotune, what they leave open is chosen.
    """
    strategy, limits = StrategyKind(config["Strategy"]), config["ResourceLimits"]
    early_stopping = _early_stopping(config, tags)
    if strategy is StrategyKind.HYPERBAND and early_stopping is not EarlyStopping.OFF:
        raise InvalidRequest("Hyperband stops training jobs itself; set TrainingJobEarlyStoppingType to Off.")
    plan = TuningPlan(
        strategy=strategy,
        definitions=definitions,
        max_parallel=_within(limits["MaxParallelTrainingJobs"], MAX_PARALLEL, "MaxParallelTrainingJobs"),
        max_trials=_max_trials(limits, strategy, definitions=definitions),
        max_runtime_s=limits.get("MaxRuntimeInSeconds"),
        seed=config.get("RandomSeed", secrets.randbelow(_SEED_COUNT)),
        early_stopping=early_stopping,
        resources=_resources(config, strategy, definitions=definitions),
        completion=_completion(config.get("TuningJobCompletionCriteria", {})),
        warm_start=warm_start,
        pruning_rules=_pruning_rules(tags),
    )
    plan = apply_autotune(plan, given=set(_given_fields(config, tags))) if is_autotuned else plan
    _require_end(plan)
    return plan


def _given_fields(config: Mapping[str, Any], tags: Mapping[str, str]) -> Iterator[str]:
    """Yield the fields of the plan that the request sets."""
    yield "strategy"
    if "TrainingJobEarlyStoppingType" in config or EARLY_STOPPING_TAG in tags:
        yield "early_stopping"
    if "MaxNumberOfTrainingJobs" in config["ResourceLimits"]:
        yield "max_trials"
    if "TuningJobCompletionCriteria" in config:
        yield "completion"


def _require_end(plan: TuningPlan) -> None:
    if plan.max_trials is None and plan.max_runtime_s is None and plan.completion == CompletionCriteria():
        raise InvalidRequest(
            "Nothing ends this tuning job; give MaxNumberOfTrainingJobs or MaxRuntimeInSeconds in ResourceLimits, or "
            "TuningJobCompletionCriteria."
        )


def _completion(criteria: Mapping[str, Any]) -> CompletionCriteria:
    target = criteria.get("TargetObjectiveMetricValue")
    if target is not None and not math.isfinite(target):
        raise InvalidRequest(f"TargetObjectiveMetricValue is {target}; it must be a finite number.")
    return CompletionCriteria(
        target=target,
        most_without_improvement=criteria.get("BestObjectiveNotImproving", {}).get(
            "MaxNumberOfTrainingJobsNotImproving"
        ),
        on_convergence=criteria.get("ConvergenceDetected", {}).get("CompleteOnConvergence") == "Enabled",
    )


def _early_stopping(config: Mapping[str, Any], tags: Mapping[str, str]) -> EarlyStopping:
    """Return the early stopping of a request. A tag takes precedence, because SDKs send Off by default."""
    word = tags.get(EARLY_STOPPING_TAG)
    if word is None:
        return EarlyStopping(config.get("TrainingJobEarlyStoppingType", "Off"))
    if word.lower() not in _EARLY_STOPPING_WORDS:
        raise InvalidRequest(
            f'The tag {EARLY_STOPPING_TAG} is "{word}"; use one of {", ".join(_EARLY_STOPPING_WORDS)}.'
        )
    return _EARLY_STOPPING_WORDS[word.lower()]


def _max_trials(
    limits: Mapping[str, Any], strategy: StrategyKind, *, definitions: Sequence[TuningDefinition]
) -> int | None:
    requested: int | None = limits.get("MaxNumberOfTrainingJobs")
    if strategy is StrategyKind.GRID:
        return _within(_grid_size(definitions, requested), MAX_TRIALS, "The number of combinations of a Grid")
    return None if requested is None else _within(requested, MAX_TRIALS, "MaxNumberOfTrainingJobs")


def _grid_size(definitions: Sequence[TuningDefinition], requested: int | None) -> int:
    numeric = [each.name for one in definitions for each in one.ranges if each.kind is not RangeKind.CATEGORICAL]
    if numeric:
        raise InvalidRequest(
            f"Grid tries every combination of values, so it accepts only CategoricalParameterRanges; make "
            f"{', '.join(numeric)} categorical, or choose another strategy."
        )
    total = sum(combinations(one.ranges) or 0 for one in definitions)
    if requested is not None and requested != total:
        raise InvalidRequest(
            f"Grid tries all {total} combinations, but MaxNumberOfTrainingJobs is {requested}; leave it out, or set it "
            f"to {total}."
        )
    return total


def _within(number: int, most: int, what: str) -> int:
    if number > most:
        raise InvalidRequest(f"{what} is {number}; at most {most} are allowed.")
    return number


def _resources(
    config: Mapping[str, Any], strategy: StrategyKind, *, definitions: Sequence[TuningDefinition]
) -> HyperbandResources | None:
    given = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig")
    if strategy is not StrategyKind.HYPERBAND:
        if given is not None:
            raise InvalidRequest(f"HyperbandStrategyConfig needs the strategy Hyperband, not {strategy}.")
        return None
    least, most = (given or {}).get("MinResource"), (given or {}).get("MaxResource")
    _require_resources(least, most)
    found = {resources_of(each.static, least=least, most=most): each for each in definitions}
    if None in found:
        raise InvalidRequest(
            f"{definition_label(found[None])} does not say how long a training job can be; give MaxResource in "
            f"HyperbandStrategyConfig, or one of {', '.join(EPOCH_HYPERPARAMETERS)} in the StaticHyperParameters."
        )
    if len(found) > 1:
        raise InvalidRequest(
            "The training job definitions have different numbers of epochs; give MaxResource in "
            "HyperbandStrategyConfig, which applies to all."
        )
    (resources,) = found
    return resources


def _require_resources(least: int | None, most: int | None) -> None:
    if most is not None and most > MAX_REPORTS:
        raise InvalidRequest(f"MaxResource is {most}; at most {MAX_REPORTS} are allowed.")
    if least is not None and most is not None and least > most:
        raise InvalidRequest(f"MinResource is {least}, more than the MaxResource of {most}; lower it.")


def _pruning_rules(tags: Mapping[str, str]) -> tuple[str, ...]:
    rules = tuple(dict.fromkeys(tags.get(PRUNING_TAG, "").split()))
    if not rules:
        return ()
    # Imports numpy, which a yard without rules does not need.
    from trainyard.insight.rules.catalog import make_rule

    for word in rules:
        try:
            rule = make_rule(word, {})
        except InvalidRequest as error:
            raise InvalidRequest(f"The tag {PRUNING_TAG} has an invalid rule: {error.message}") from error
        if any(need.is_raw for need in rule.needs.parts):
            raise InvalidRequest(
                f"The tag {PRUNING_TAG} names {word}, which needs the values of tensors; only rules that need just "
                "statistics can prune, such as NotANumber, LossNotDecreasing or ExplodingTensor."
            )
    return rules
