from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Probe, Step
from trainyard.formats.tensors.statistics.probes import UPDATE_RATIO
from trainyard.insight.rules.catalog import make_rule

WEIGHT = "Net_fc1.weight"
PROBE = Probe(UPDATE_RATIO, (1e-9,))


def measure(ratios: Sequence[float], *, has_gradient: bool = True) -> list[Step]:
    run = Run()
    gradients = {f"gradient/{WEIGHT}" if has_gradient else "gradient/Net_head.weight": np.ones((2, 2))}
    return [run.step({WEIGHT: np.ones((2, 2)), **gradients}, measures={(WEIGHT, PROBE): ratio}) for ratio in ratios]


def saved(factors: Sequence[float], mode: Mode = Mode.TRAIN) -> list[Step]:
    run = Run()
    return [run.step({WEIGHT: np.full((2, 2), factor)}, is_raw=True, mode=mode) for factor in factors]


def test_an_update_over_the_large_threshold_is_found() -> None:
    (finding,) = found_by("WeightUpdateRatio", measure([np.nan, 0.1, 10, 12]))
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == (WEIGHT, 3, 12, 10)


def test_an_update_under_the_small_threshold_is_found() -> None:
    (finding,) = found_by("WeightUpdateRatio", measure([np.nan, 0.1, 0.0]))
    assert (finding.step, finding.value, finding.threshold) == (2, 0, 1e-8)


def test_updates_between_the_two_are_not_found() -> None:
    assert found_by("WeightUpdateRatio", measure([np.nan, 2e-8, 10])) == []


def test_frozen_weights_are_no_finding_with_the_advised_defaults() -> None:
    steps = measure([0.0] * 12, has_gradient=False)
    assert found_by("WeightUpdateRatio", steps) != []
    assert found_by("WeightUpdateRatio", steps, defaults="advised") == []
    assert [finding.step for finding in found_by("WeightUpdateRatio", measure([0.0] * 10), defaults="advised")] == [9]


def test_saved_weights_are_compared_with_those_saved_before() -> None:
    (finding,) = found_by("WeightUpdateRatio", saved([1.0, 1.5, 20.0]))
    assert finding.step == 2
    assert finding.value == pytest.approx(18.5 / 1.5)


def test_saved_weights_are_compared_over_so_many_steps() -> None:
    (finding,) = found_by("WeightUpdateRatio", saved([1.0, 4.0, 11.5]), num_steps="2")
    assert finding.step == 2
    assert finding.value == pytest.approx(10.5)


def test_a_comparison_over_several_steps_needs_raw_values() -> None:
    assert make_rule("WeightUpdateRatio", {"num_steps": "5"}).needs.is_raw
    assert not make_rule("WeightUpdateRatio", {}).needs.is_raw


def test_evaluations_in_between_are_not_compared() -> None:
    assert found_by("WeightUpdateRatio", saved([1.0, 1.0, 1.0], mode=Mode.EVAL)) == []
