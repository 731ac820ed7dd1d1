"""Trials of what a hook has saved, as rules and notebooks use them."""

from pathlib import Path

import numpy as np
import pytest
import smdebug.pytorch as smd
from smdebug import modes
from smdebug.core.tensor import StepState
from smdebug.exceptions import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.trials import LocalTrial, ProfilerTrial, Trial, create_trial

from tests.unit.instance.compat.smdebug.programs import every, registered, train
from trainyard.testing.eventually import eventually


def save(out: str, *, steps: int = 5) -> None:
    hook = smd.Hook(out, save_config=every(2), include_collections=["weights", "biases"])
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["mean", "max"])
    model, loss = registered(hook)
    hook.set_mode(modes.TRAIN)
    train(model, loss, steps=steps)
    hook.set_mode(modes.EVAL)
    train(model, loss, steps=2)
    hook.close()


@pytest.fixture
def trial(out: str) -> Trial:
    save(out)
    return create_trial(f" {out} ", name="mine")


def test_a_trial_has_a_name_and_a_folder(trial: Trial, out: str) -> None:
    assert isinstance(trial, LocalTrial)
    assert (trial.name, trial.path) == ("mine", out)
    assert create_trial(out).name == "out"
    assert trial == create_trial(out, name="mine")
    assert trial != create_trial(out)


def test_global_steps_and_mode_steps_convert_both_ways(trial: Trial) -> None:
    assert trial.steps() == [0, 2, 4, 5]
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4]
    assert trial.steps(mode=modes.EVAL) == [0]
    assert set(trial.modes()) == {modes.TRAIN, modes.EVAL}
    assert trial.mode_modestep(5) == (modes.EVAL, 0)
    assert (trial.mode(2), trial.mode_step(2)) == (modes.TRAIN, 2)
    assert trial.global_step(modes.EVAL, 0) == 5
    assert trial.workers() == ["worker_0"]
    assert trial.num_workers == 1
    assert trial.last_complete_step == 6


def test_tensors_are_found_by_step_mode_regex_and_collection(trial: Trial) -> None:
    weights = ["Net_again.weight", "Net_fc.weight"]
    assert trial.tensor_names(collection="weights") == weights
    assert trial.tensor_names(collection=smd.Collection("weights")) == weights
    assert trial.tensor_names(regex=["fc", "Loss"]) == ["MSELoss_output_0", "Net_fc.bias", "Net_fc.weight"]
    assert trial.tensor_names(step=0, mode=modes.EVAL, regex="MSE") == ["MSELoss_output_0"]
    assert trial.tensor_names(mode=modes.PREDICT) == []
    with pytest.raises(ValueError, match="not by both"):
        trial.tensor_names(regex="a", collection="weights")
    with pytest.raises(TypeError, match="is neither a collection"):
        trial.tensor_names(collection=3)


def test_collections_are_as_configured(trial: Trial) -> None:
    weights = trial.collection("weights")
    assert weights.tensor_names == {"Net_again.weight", "Net_fc.weight"}
    assert weights.include_regex == ["^(?!gradient).*weight"]
    assert weights.save_config.get_save_config(modes.TRAIN).save_interval == 2
    assert trial.collections()["biases"].reduction_config.reductions == ["mean", "max"]
    assert trial.collection("nothing").tensor_names == set()


def test_reductions_exist_where_values_do_not(trial: Trial) -> None:
    bias, weight = trial.tensor("Net_fc.bias"), trial.tensor("Net_fc.weight")
    with pytest.raises(TensorUnavailableForStep) as raised:
        bias.value(2)
    assert raised.value.has_reductions
    with pytest.raises(TensorUnavailableForStep):
        bias.values()
    assert bias.reduction_value(2, "max") == bias.reduction_values(2)["max", False]
    value = weight.value(2)
    assert weight.reduction_value(2, "mean", abs=True) == pytest.approx(np.abs(value).mean(), rel=1e-6)
    assert weight.reduction_value(2, "prod") == pytest.approx(value.prod(dtype=np.float64))
    assert weight.shape(2) == value.shape
    with pytest.raises(SMDebugValueError, match='no reduction "median"'):
        weight.reduction_value(2, "median")


def test_a_tensor_lists_its_steps(trial: Trial) -> None:
    tensor = trial.tensor("Net_fc.weight")
    assert tensor.steps() == [0, 2, 4, 5]
    assert tensor.prev_steps(4, 2) == [2, 4]
    assert tensor.prev_steps(3) == [0, 2]
    assert tensor.workers(2) == ["worker_0"]
    assert tensor.name == tensor.original_name == "Net_fc.weight"
    assert list(tensor.values(mode=modes.TRAIN)) == [0, 2, 4]
    with pytest.raises(SMDebugNotImplementedError, match="value"):
        tensor.step(2)


def test_unavailable_values_raise_smdebugs_errors(trial: Trial) -> None:
    tensor = trial.tensor("Net_fc.weight")
    with pytest.raises(TensorUnavailable, match="nothing"):
        trial.tensor("nothing")
    with pytest.raises(StepUnavailable) as raised:
        tensor.value(1)
    assert (raised.value.step, raised.value.mode) == (1, modes.GLOBAL)
    with pytest.raises(StepUnavailable):
        tensor.value(100)
    with pytest.raises(InvalidWorker, match="worker_9"):
        tensor.value(2, worker="worker_9")
    with pytest.raises(NoMoreData) as ended:
        trial.wait_for_steps([2, 100])
    assert ended.value.last_step == 5
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([3])


def test_a_step_is_available_or_skipped_or_past_the_end(trial: Trial) -> None:
    states = [trial.has_passed_step(step) for step in (0, 1, 100)]
    assert states == [StepState.AVAILABLE, StepState.UNAVAILABLE, StepState.UNAVAILABLE]


def test_a_live_trial_shows_new_steps_unless_refreshing_is_off(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1))
    model, loss = registered(hook)
    train(model, loss, steps=2)
    eventually(lambda: (Path(out) / "worker_0.manifest.json").exists())
    trial = LocalTrial("live", out)
    trial.wait_for_steps([0])
    assert trial.has_passed_step(50) is StepState.NOT_YET_AVAILABLE
    assert not trial.loaded_all_steps
    trial.dynamic_refresh = False
    hook.close()
    assert not trial.loaded_all_steps
    trial.dynamic_refresh = True
    assert trial.steps() == [0, 1]
    assert trial.loaded_all_steps


def test_create_trial_waits_for_a_trial_that_does_not_exist_yet(out: str) -> None:
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        save(out)

    assert LocalTrial("early", out, pause=pause).steps() == [0, 2, 4, 5]
    assert len(waits) == 1


def test_a_training_that_ended_without_a_tensor_has_no_trial(out: str) -> None:
    Path(out).mkdir()
    (Path(out) / "training_job_end.ts").touch()
    with pytest.raises(MissingCollectionFiles):
        create_trial(out)


def test_a_range_excludes_steps(trial: Trial, out: str) -> None:
    assert create_trial(out, range_steps=(1, 5)).steps() == [2, 4]
    with pytest.raises(AssertionError, match="before the end"):
        create_trial(out, range_steps=(5, 1))


def test_profiler_trials_are_unsupported(out: str) -> None:
    with pytest.raises(SMDebugNotImplementedError, match="profiler"):
        create_trial(out, profiler=True)
    with pytest.raises(SMDebugNotImplementedError, match="profiler"):
        ProfilerTrial("mine", out)
