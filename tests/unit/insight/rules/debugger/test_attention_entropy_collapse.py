import re

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import ROW_ENTROPY
from trainyard.insight.rules.debugger.attention_entropy_collapse import ATTENTION

WEIGHTS = "blocks.0.attention.softmax_output_0"


def run_with(entropies: list[float], name: str = WEIGHTS, shape: tuple[int, ...] = (2, 3, 4, 4)) -> list[Step]:
    run = Run()
    return [run.step({name: np.ones(shape)}, measures={(name, Probe(ROW_ENTROPY)): each}) for each in entropies]


def test_attention_that_has_collapsed_is_found_once_it_stays_so() -> None:
    (finding,) = found_by("AttentionEntropyCollapse", run_with([0.7, 0.01, 0.7, *[0.02] * 10]))
    assert (finding.tensor, finding.step, finding.threshold) == (WEIGHTS, 12, 0.1)
    assert finding.value == pytest.approx(0.02)
    assert finding.module == "blocks.0.attention.softmax"


def test_sharp_attention_is_not_found() -> None:
    assert found_by("AttentionEntropyCollapse", run_with([0.15] * 50)) == []


def test_a_softmax_over_classes_is_not_attention() -> None:
    assert found_by("AttentionEntropyCollapse", run_with([0.0] * 20, name="softmax_output_0", shape=(8, 10))) == []
    assert (
        found_by("AttentionEntropyCollapse", run_with([0.0] * 20, name="attention.softmax_output_0", shape=(8, 10)))
        == []
    )


@pytest.mark.parametrize(
    "name",
    [
        "transformer.h.0.attn.attn_dropout_input_0",
        "bert.encoder.layer.1.attention.self.dropout_input_0",
        "encoder.layers.0.self_attn_output_1",
        "blocks.3.attn.softmax_output_0",
    ],
)
def test_the_weights_of_well_known_models_are_looked_at(name: str) -> None:
    assert any(re.search(regex, name) for regex in ATTENTION)


@pytest.mark.parametrize(
    "name", ["classifier.dropout_input_0", "encoder.layers.0.self_attn_output_0", "attn.qkv_input_0"]
)
def test_other_layers_are_not_looked_at(name: str) -> None:
    assert not any(re.search(regex, name) for regex in ATTENTION)


def test_attention_to_the_only_place_there_is_has_not_collapsed() -> None:
    assert found_by("AttentionEntropyCollapse", run_with([0.0] * 20, shape=(2, 3, 4, 1))) == []
