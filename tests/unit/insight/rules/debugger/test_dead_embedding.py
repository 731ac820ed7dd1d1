import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Probe, Step
from trainyard.formats.tensors.statistics.probes import ZERO_ROWS

STATE = "optimizer/exp_avg_sq/Net_embedding.weight"


def run_with(shares: list[float], name: str = STATE) -> list[Step]:
    run = Run()
    return [run.step({name: np.ones((40, 8))}, measures={(name, Probe(ZERO_ROWS)): share}) for share in shares]


def test_an_embedding_of_which_most_rows_are_never_used_is_found() -> None:
    (finding,) = found_by("DeadEmbedding", run_with([0.9, *[0.75] * 99]))
    assert (finding.tensor, finding.step) == ("Net_embedding.weight", 99)
    assert finding.threshold == 0.5
    assert finding.value == pytest.approx(0.75)
    assert "75% of the 40 rows" in finding.message
    assert finding.evidence[0].values[0] == pytest.approx(0.9)


def test_an_embedding_whose_rows_still_come_into_use_is_not_found() -> None:
    # Of a large vocabulary each batch uses few words, so that it takes long until all were used once.
    assert found_by("DeadEmbedding", run_with(np.geomspace(0.99, 0.6, 400).tolist())) == []


def test_an_embedding_of_which_half_is_used_is_not_found() -> None:
    assert found_by("DeadEmbedding", run_with([0.5] * 300)) == []


def test_other_weights_are_not_looked_at() -> None:
    assert found_by("DeadEmbedding", run_with([1.0] * 300, name="optimizer/exp_avg_sq/Net_fc.weight")) == []
    assert found_by("DeadEmbedding", run_with([1.0] * 300, name="optimizer/exp_avg/Net_embedding.weight")) == []
    assert len(found_by("DeadEmbedding", run_with([1.0] * 100, name="Net_fc.weight"), tensor_regex="fc")) == 1


def test_it_is_not_judged_before_its_time() -> None:
    assert found_by("DeadEmbedding", run_with([1.0] * 99)) == []


def test_what_was_so_in_the_first_half_of_the_steps_does_not_count() -> None:
    (finding,) = found_by("DeadEmbedding", run_with([0.9] * 4 + [0.8] * 6), steps="10")
    assert finding.step == 9
    assert finding.module.endswith("embedding")
    assert found_by("DeadEmbedding", run_with([0.9] * 6 + [0.8] * 4), steps="10") == []
