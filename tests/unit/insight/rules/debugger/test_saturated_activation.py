import numpy as np

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import IDLE_UNITS

TANH, SIGMOID = "layer1.tanh_input_0", "gate.sigmoid_input_0"
TANH_PROBE = Probe(IDLE_UNITS, (-9.4999, 9.4999, 0.01))
SIGMOID_PROBE = Probe(IDLE_UNITS, (-23.0, 16.99999, 0.01))


def measure(*, tanh: float, sigmoid: float) -> Step:
    measures = {
        (TANH, TANH_PROBE): tanh,
        (TANH, SIGMOID_PROBE): 0.0,
        (SIGMOID, TANH_PROBE): 1.0,
        (SIGMOID, SIGMOID_PROBE): sigmoid,
    }
    return Run().step({TANH: np.ones((32, 4)), SIGMOID: np.ones((32, 4))}, measures=measures)


def test_a_layer_with_too_many_saturated_units_is_found() -> None:
    (finding,) = found_by("SaturatedActivation", [measure(tanh=0.625, sigmoid=0.1)])
    assert (finding.tensor, finding.module, finding.value, finding.threshold) == (TANH, "layer1.tanh", 62.5, 50)
    assert "between -9.4999 and 9.4999" in finding.message


def test_a_sigmoid_has_limits_of_its_own() -> None:
    (finding,) = found_by("SaturatedActivation", [measure(tanh=0.1, sigmoid=0.8)])
    assert finding.tensor == SIGMOID
    assert "between -23 and 17" in finding.message


def test_units_with_a_slope_are_not_found() -> None:
    assert found_by("SaturatedActivation", [measure(tanh=0.5, sigmoid=0.5)]) == []


def test_raw_inputs_are_judged_where_nothing_was_measured() -> None:
    run = Run()
    steps = [run.step({TANH: np.array([[50.0, -50.0, 0.1]] * 4)}, is_raw=True)]
    assert [round(finding.value or 0) for finding in found_by("SaturatedActivation", steps)] == [67]


def test_milder_saturation_is_found_with_the_advised_defaults_after_ten_steps() -> None:
    run = Run()
    steps = [run.step({TANH: np.array([[7.0, -7.0, 0.1]] * 16)}, is_raw=True) for _ in range(10)]
    assert found_by("SaturatedActivation", steps) == []
    assert [finding.step for finding in found_by("SaturatedActivation", steps, defaults="advised")] == [9]
