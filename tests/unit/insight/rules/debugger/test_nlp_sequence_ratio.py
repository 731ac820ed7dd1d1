import re

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import VALUE_SHARE
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.debugger.nlp_sequence_ratio import NLPSequenceRatio

TOKENS = "embedding0_input_0"


def run_with(shares: list[float], *, token: float = 0, name: str = TOKENS) -> list[Step]:
    run = Run()
    measured = Probe(VALUE_SHARE, (token,))
    return [run.step({name: np.ones((4, 16))}, measures={(name, measured): share}) for share in shares]


def test_sequences_that_are_mostly_padding_are_found() -> None:
    (finding,) = found_by("NLPSequenceRatio", run_with([0.3, 0.5, 0.6]))
    assert (finding.tensor, finding.step, finding.threshold) == (TOKENS, 2, 50.0)
    assert finding.value == pytest.approx(60)


def test_each_token_has_a_threshold_of_its_own() -> None:
    steps = run_with([0.2], token=3)
    assert found_by("NLPSequenceRatio", steps, token_values="0,3", token_thresholds_percent="50,30") == []
    (finding,) = found_by("NLPSequenceRatio", steps, token_values="0,3", token_thresholds_percent="50,10")
    assert "20 % of the tokens in embedding0_input_0 are 3, more than 10 %" in finding.message


def test_a_single_batch_of_short_sequences_is_not_found_as_advised() -> None:
    name = "embedding_input_0"
    assert found_by("NLPSequenceRatio", run_with([0.4, 0.52] * 30, name=name), defaults="advised") == []
    assert found_by("NLPSequenceRatio", run_with([0.6] * 30, name=name), defaults="advised")[0].step == 19


@pytest.mark.parametrize(
    ("name", "is_looked_at"),
    [
        ("model.embed_tokens_input_0", True),
        ("transformer.wte_input_0", True),
        ("bert.embeddings.word_embeddings_input_0", True),
        ("bert.embeddings.token_type_embeddings_input_0", False),  # which sentence a token is of: mostly the first
        ("bert.embeddings.LayerNorm_input_0", False),
    ],
)
def test_the_tokens_of_well_known_models_are_looked_at_as_advised(name: str, is_looked_at: bool) -> None:
    advised = NLPSequenceRatio.parameters[0].advised
    assert isinstance(advised, tuple)
    assert any(re.search(regex, name) for regex in advised) is is_looked_at


def test_a_token_without_a_threshold_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="2 token_values and 1 token_thresholds_percent"):
        make_rule("NLPSequenceRatio", {"token_values": "0,1"})
    with pytest.raises(InvalidRequest, match="needs numbers"):
        make_rule("NLPSequenceRatio", {"token_values": "pad"})


@pytest.mark.parametrize("name", ["token_values", "token_thresholds_percent"])
def test_what_is_no_number_is_refused_by_the_name_of_its_parameter(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f'Parameter "{name}" of rule NLPSequenceRatio is "many"'):
        make_rule("NLPSequenceRatio", {name: "many"})
