import math

import numpy as np

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Probe, Step
from trainyard.formats.tensors.statistics.probes import IDLE_UNITS

OUTPUT = "block1.relu_output_0"
PROBE = Probe(IDLE_UNITS, (0.0, math.inf, 0.01))


def run_with(shares: list[float], *, name: str = OUTPUT, batch: int = 32, mode: Mode = Mode.TRAIN) -> list[Step]:
    run = Run()
    return [run.step({name: np.ones((batch, 4))}, measures={(name, PROBE): share}, mode=mode) for share in shares]


def test_a_layer_with_more_dead_units_than_the_threshold_is_found() -> None:
    (finding,) = found_by("DeadRelu", run_with([0.1, 0.5, 0.75]))
    assert (finding.tensor, finding.module, finding.step) == (OUTPUT, "block1.relu", 2)
    assert (finding.value, finding.threshold) == (75, 50)
    assert list(finding.evidence[0].values)[-1] == 75


def test_half_of_the_units_are_not_enough() -> None:
    assert found_by("DeadRelu", run_with([0.5])) == []


def test_single_steps_are_no_finding_with_the_advised_defaults() -> None:
    assert found_by("DeadRelu", run_with([0.9] * 9 + [0.1] + [0.9] * 9), defaults="advised") == []
    assert [finding.step for finding in found_by("DeadRelu", run_with([0.9] * 10), defaults="advised")] == [9]


def test_small_batches_are_not_judged_with_the_advised_defaults() -> None:
    assert found_by("DeadRelu", run_with([0.9] * 10, batch=2), defaults="advised") == []


def test_numbered_relus_are_looked_at_with_the_advised_defaults() -> None:
    steps = run_with([0.9] * 10, name="relu1_output_0")
    assert found_by("DeadRelu", steps) == []
    assert found_by("DeadRelu", steps, defaults="advised") != []


def test_raw_outputs_are_judged_where_nothing_was_measured() -> None:
    values = np.zeros((8, 4))
    values[:, 0] = 1.0
    (finding,) = found_by("DeadRelu", [Run().step({OUTPUT: values}, is_raw=True)])
    assert finding.value == 75


def test_evaluations_are_not_judged() -> None:
    assert found_by("DeadRelu", run_with([0.9], mode=Mode.EVAL)) == []
