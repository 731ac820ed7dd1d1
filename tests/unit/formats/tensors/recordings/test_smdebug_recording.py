"""Trials that smdebug 1.0.34 wrote: we read of them what its own reader does, and more."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainyard.formats.tensors.contract import Kind, Mode, Statistic
from trainyard.formats.tensors.errors import ShapeUnavailableForStep, TensorUnavailableForStep
from trainyard.formats.tensors.trials.trial import StepState, Trial, create_trial
from trainyard.foundation.errors import Corrupt

HERE = Path(__file__).parent
WRITTEN = HERE / "smdebug_trial"
TOLD: dict[str, Any] = json.loads((HERE / "smdebug_expected.json").read_text())

LOSS, WEIGHT, GRADIENT = "MSELoss_output_0", "Sequential_0.weight", "gradient/Sequential_0.weight"


@pytest.fixture
def trial() -> Trial:
    return create_trial(WRITTEN)


def test_steps_and_names_are_those_that_smdebug_tells(trial: Trial) -> None:
    for mode, steps in TOLD["steps"].items():
        assert trial.steps(Mode(mode)) == steps
    for mode, names in TOLD["names"].items():
        assert trial.tensor_names(mode=Mode(mode)) == names
    for step, names in TOLD["names_at"].items():
        assert trial.tensor_names(step=int(step)) == names
    for name, steps in TOLD["steps_of"].items():
        assert trial.tensor(name).steps() == steps
    last = trial.tensor(TOLD["names"]["GLOBAL"][-1])
    assert last.prev_steps(5, 2) == TOLD["prev_steps"]
    assert (trial.num_workers, trial.workers(), trial.loaded_all_steps) == (1, ["worker_0"], True)
    assert {name: sorted(each.tensor_names) for name, each in trial.collections().items()} == TOLD["collections"]


def test_values_and_reductions_are_those_that_smdebug_tells(trial: Trial) -> None:
    for name, steps in TOLD["values"].items():
        tensor = trial.tensor(name)
        for step, told in steps:
            if "value" in told:
                value = tensor.value(step)
                assert value.tolist() == told["value"]
                assert value.dtype.name == told["dtype"]
                continue
            assert tensor.reduction_values(step) == {(word, is_abs): v for word, is_abs, v in told["reductions"]}
            assert list(tensor.shape(step)) == told["shape"]
            with pytest.raises(TensorUnavailableForStep) as error:
                tensor.value(step)
            assert error.value.has_reductions


def test_series_and_tables_come_from_the_saved_tensors(trial: Trial) -> None:
    losses = dict(TOLD["values"][LOSS])
    series = trial.series(LOSS)
    assert series.values.tolist() == [losses[step]["value"] for step in series.steps.tolist()]
    assert trial.series(WEIGHT, "max").values[0] == np.float32(np.max(TOLD["values"][WEIGHT][0][1]["value"]))
    saved = {(word, is_abs): value for word, is_abs, value in TOLD["values"][GRADIENT][0][1]["reductions"]}
    assert trial.series(GRADIENT, "abs_mean").values[0] == saved["mean", True]
    table = trial.table(collection="weights", statistics=["mean"])
    assert table.tensors == (WEIGHT, "Sequential_2.weight")
    assert np.isnan(table.values[:, 0, 0]).tolist() == [False, False, False, False, True, True]


def test_a_step_has_the_statistics_of_its_values(trial: Trial) -> None:
    step = trial.step(2)
    place = step.table.places[WEIGHT]
    assert step.table.tensors[place].kind is Kind.WEIGHT
    assert step.statistics[place, Statistic.MAX] == step.values[WEIGHT].max()
    gradient = step.table.places[GRADIENT]
    assert not np.isnan(step.statistics[gradient, [Statistic.MEAN, Statistic.MIN, Statistic.MEAN_ABS]]).any()
    assert np.isnan(step.statistics[gradient, Statistic.MAX])
    assert [each.number for each in trial.read_steps(after=3)] == [5, 7, 9]


def test_a_trial_that_smdebug_still_writes_is_followed(tmp_path: Path) -> None:
    live = tmp_path / "live"
    shutil.copytree(WRITTEN, live)
    later = [live / "index/000000000" / f"{step:012}_worker_0.json" for step in (7, 9)]
    texts = [path.read_text() for path in later]
    for path in later:
        path.unlink()
    (live / "training_job_end.ts").unlink()
    trial = create_trial(live)
    assert trial.steps() == [0, 2, 3, 5]
    assert trial.has_passed_step(7) is StepState.NOT_YET_AVAILABLE
    assert trial.has_passed_step(4) is StepState.UNAVAILABLE
    later[0].write_text(texts[0])
    assert trial.steps() == [0, 2, 3, 5, 7]
    assert not trial.loaded_all_steps
    far = live / "index/000000412" / "000000412000_worker_0.json"
    far.parent.mkdir()
    far.write_text(texts[1])
    (live / "training_job_end.ts").touch()
    assert trial.steps()[-1] == 412000
    assert trial.loaded_all_steps


def test_a_step_of_two_workers_is_there_when_both_have_written_it(tmp_path: Path) -> None:
    both = tmp_path / "both"
    shutil.copytree(WRITTEN, both)
    (both / "training_job_end.ts").unlink()
    collections = both / "collections/000000000"
    told = json.loads((collections / "worker_0_collections.json").read_text())
    told["_meta"]["num_workers"] = 2
    for worker in ("worker_0", "worker_1"):
        (collections / f"{worker}_collections.json").write_text(json.dumps(told))
    for step in (0, 2):
        source = both / "index/000000000" / f"{step:012}_worker_0.json"
        shutil.copy(source, source.with_name(f"{step:012}_worker_1.json"))
    trial = create_trial(both)
    assert (trial.workers(), trial.steps()) == (["worker_0", "worker_1"], [0, 2])
    assert trial.tensor(LOSS).workers(2) == ["worker_0", "worker_1"]


def test_a_truncated_record_is_corrupt(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(WRITTEN, cut)
    events = cut / "events/000000000000/000000000000_worker_0.tfevents"
    events.write_bytes(events.read_bytes()[:100])
    with pytest.raises(Corrupt, match="truncated"):
        create_trial(cut).tensor(WEIGHT).value(0)
    (cut / "index/000000000/000000000002_worker_0.json").write_text("{}")
    with pytest.raises(Corrupt, match="index of step 2 of worker_0"):
        create_trial(cut)


def test_a_shape_that_was_not_saved_is_not_known(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(WRITTEN, bare)
    index = bare / "index/000000000/000000000000_worker_0.json"
    told = json.loads(index.read_text())
    told["shape_payload"] = []
    index.write_text(json.dumps(told))
    with pytest.raises(ShapeUnavailableForStep):
        create_trial(bare).tensor(GRADIENT).shape(0)
