from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.formats.tensors.runs import GRADIENT, LOSS, WEIGHT, Clock, step_of, values_at, write_run
from trainyard.formats.tensors.contract import Kind, TensorInfo, TensorTable
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.statistics import histograms
from trainyard.formats.tensors.trials import excerpts
from trainyard.formats.tensors.trials.trial import Trial, create_trial


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    write_run(tmp_path, 100)
    return create_trial(tmp_path)


def test_recorded_histograms_are_returned_without_their_empty_ends(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(8):
        step = step_of(number)
        writer.append(step)
        writer.append_histograms(step, [0], histograms.count(values_at(number, 0))[None])
    writer.close()
    found = create_trial(tmp_path).distributions(WEIGHT, max_steps=4)
    assert found.is_recorded
    assert found.steps.tolist() == [0, 2, 5, 7]
    assert found.steps_left_out == 4
    assert found.counts.sum(axis=1).tolist() == [6] * 4
    assert len(found.edges) == found.counts.shape[1] + 1 < histograms.BINS
    assert found.counts[:, 0].any()
    assert found.counts[:, -1].any()


def test_otherwise_they_are_computed_from_saved_values(trial: Trial) -> None:
    found = trial.distributions(WEIGHT, max_steps=100)
    assert not found.is_recorded
    assert found.steps.tolist() == list(range(0, 100, 10))
    assert found.counts.sum(axis=1).tolist() == [6] * 10
    assert (found.edges[0], found.edges[-1]) == (-2, 3)
    assert found.counts[0, 0] == 1  # -2 in the first step


def test_a_tensor_without_saved_values_has_no_distribution(trial: Trial) -> None:
    assert not len(trial.distributions(GRADIENT, max_steps=10).steps)


def test_large_tensors_have_fewer_steps(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpts, "MAX_RAW_BYTES", 3 * 6 * 4)
    found = trial.distributions(WEIGHT, max_steps=100)
    assert found.steps.tolist() == [0, 40, 90]
    assert found.steps_left_out == 7


def test_a_rectangle_is_cut_out_of_the_matrix(trial: Trial) -> None:
    found = trial.rectangle(WEIGHT, 10, first_row=1, first_column=1, rows=5, columns=1)
    assert found is not None
    assert (found.rows, found.columns, found.first_row, found.first_column) == (2, 3, 1, 1)
    assert found.values.tolist() == values_at(10, 0)[1:, 1:2].tolist()
    beyond = trial.rectangle(WEIGHT, 10, first_row=7)
    assert beyond is not None
    assert beyond.values.shape == (0, 3)


def test_values_that_were_not_saved_are_none_except_of_one_element(trial: Trial) -> None:
    assert trial.rectangle(WEIGHT, 11) is None
    loss = trial.rectangle(LOSS, 11)
    assert loss is not None
    assert loss.values.tolist() == [[pytest.approx(1 / 12)]]


@pytest.mark.parametrize("gap", [0, 1 << 20])
def test_wide_rows_are_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    monkeypatch.setattr(excerpts, "_GAP_BYTES", gap)
    wide = np.arange(2 * 3 * 500, dtype=np.float32).reshape(2, 3, 500)
    table = TensorTable((TensorInfo("wide", Kind.CUSTOM, wide.shape, "float32"),))
    writer = TrialWriter(tmp_path, clock=Clock())
    saved = replace(
        step_of(0),
        table=table,
        measures=np.empty(0, np.float32),
        scalars=np.empty(0),
        statistics=np.zeros((1, 8), np.float32),
        saved=np.array([True]),
    )
    writer.append(saved)
    writer.save_values(0, {"wide": wide})
    writer.close()
    found = create_trial(tmp_path).rectangle("wide", 0, first_row=2, first_column=490, rows=3, columns=20)
    assert found is not None
    assert found.values.tolist() == wide.reshape(6, 500)[2:5, 490:].tolist()
