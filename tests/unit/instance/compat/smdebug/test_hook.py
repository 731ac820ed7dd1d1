"""The hook for torch as scripts create it, and the resulting trials."""

import copy
import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import smdebug.pytorch as smd
import torch
import torch.utils.checkpoint
from smdebug import modes
from smdebug.exceptions import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugNotImplementedError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)
from torch import nn

from tests.unit.instance.compat.smdebug.programs import Net, every, registered, train
from trainyard.formats.tensors.contract import Mode, Probe, Statistic, Step
from trainyard.formats.tensors.statistics.probes import ZERO_ROWS
from trainyard.instance.hook import attachment
from trainyard.instance.hook.contract import HookContext, TensorRequest


def test_losses_are_saved_by_default(out: str) -> None:
    hook = smd.Hook(out, save_config=every(2))
    train(*registered(hook))
    hook.close()
    trial = smd.create_trial(out)
    assert trial.tensor_names() == ["MSELoss_output_0"]
    assert trial.steps() == [0, 2]
    assert trial.loaded_all_steps


def test_a_weight_is_that_before_the_update(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1), include_collections=["weights"])
    model, loss = registered(hook)
    before = [model.fc.weight.detach().clone().numpy()]
    train(model, loss, each=lambda _: before.append(model.fc.weight.detach().clone().numpy()))
    hook.close()
    values = smd.create_trial(out).tensor("Net_fc.weight").values()
    assert list(values) == [0, 1, 2, 3]
    assert all(np.array_equal(values[step], before[step + 1]) for step in range(4))
    assert np.array_equal(values[0], before[0])


def test_a_gradient_is_that_of_its_own_backward(out: str) -> None:
    """With accumulated gradients, two calls are two steps, and the second does not have the sum of both."""
    hook = smd.Hook(out, save_config=every(1), include_collections=["gradients"])
    model, loss = registered(hook)
    x, y = torch.ones(2, 3), torch.zeros(2, 4)
    for _ in range(2):
        loss(model(x), y).backward()
    hook.close()
    gradient = smd.create_trial(out).tensor("gradient/Net_fc.weight")
    assert np.array_equal(gradient.value(0), gradient.value(1))
    assert np.allclose(model.fc.weight.grad.numpy(), 2 * gradient.value(0))


def test_outputs_are_counted_over_the_calls_of_a_layer_in_a_step(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1), include_regex=["again_output", "relu_input"])
    train(*registered(hook), steps=2)
    hook.close()
    names = smd.create_trial(out).tensor_names(collection="default")
    assert names == ["again_output_0", "again_output_1", "relu_input_0"]


def test_every_mode_counts_its_own_steps(out: str) -> None:
    hook = smd.Hook(out, save_config=every(2), include_collections=["gradients"])
    model, loss = registered(hook)
    hook.set_mode(modes.TRAIN)
    train(model, loss, steps=3)
    hook.set_mode(modes.EVAL)
    train(model, loss, steps=3)
    assert (hook.step, hook.mode_steps[modes.TRAIN], hook.mode_steps[modes.EVAL]) == (5, 2, 2)
    hook.close()
    trial = smd.create_trial(out)
    assert trial.steps(mode=modes.TRAIN) == trial.steps(mode=modes.EVAL) == [0, 2]
    assert trial.steps() == [0, 2, 3, 5]
    assert trial.tensor("gradient/Net_fc.weight").steps() == [0, 2], "an evaluation saves no gradients"
    with pytest.raises(SMDebugValueError, match="is not a mode"):
        hook.set_mode("TRAIN")


def test_a_scalar_is_saved_whatever_the_interval(out: str) -> None:
    hook = smd.Hook(out, save_config=every(100))
    model, loss = registered(hook)
    hook.save_scalar("early", 5)
    train(model, loss, each=lambda step: hook.save_scalar("accuracy", torch.tensor(step / 10)))
    with pytest.raises(SMDebugTypeError, match="a scalar must have one"):
        hook.save_scalar("two", [1, 2])
    hook.close()
    trial = smd.create_trial(out)
    values = trial.tensor("scalar/accuracy").values()
    assert list(values) == [0, 1, 2, 3]
    assert np.concatenate(list(values.values())) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert trial.tensor("scalar/early").steps() == [0]


def test_a_tensor_of_the_program_is_in_all_its_collections(out: str) -> None:
    hook = smd.Hook(out, save_config=every(100))
    model, loss = registered(hook)
    hook.save_tensor("images", np.arange(6).reshape(2, 3), collections_to_write=["inputs", "mine"])
    train(model, loss, steps=2, each=lambda step: hook.save_tensor("late", torch.full((2,), step), "mine"))
    hook.save_tensor("unfit", object())
    hook.close()
    trial = smd.create_trial(out)
    assert trial.tensor_names(collection="mine") == ["images", "late"]
    assert trial.inputs(0)[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert trial.tensor("late").value(1).tolist() == [0, 0], "it goes with what the training does next"
    assert not trial.has_tensor("unfit")


def test_a_custom_loss_and_a_function_are_recorded(out: str) -> None:
    class Distance(nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x - y).abs().mean()

    hook = smd.Hook(out, save_config=every(1))
    model, loss = Net(), Distance()
    hook.register_hook(model)
    hook.register_loss(loss)
    train(model, loss, steps=2, each=lambda step: hook.record_tensor_value("my_loss", torch.tensor(float(step))))
    hook.close()
    trial = smd.create_trial(out)
    assert trial.tensor_names(collection="losses") == ["Distance_output_0", "my_loss_output_0"]
    assert trial.tensor("my_loss_output_0").value(1) == 1


def test_a_loss_of_every_sample_is_saved_whole(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1))
    model, loss = Net(), nn.MSELoss(reduction="none")
    hook.register_module(model)
    hook.register_loss(loss)
    loss(model(torch.ones(2, 3)), torch.ones(2, 4)).mean().backward()
    hook.close()
    assert smd.create_trial(out).tensor("MSELoss_output_0").value(0).shape == (2, 4)


def test_values_that_break_smdebug_are_saved(out: str) -> None:
    """16-bit floats end a training with AWS's hook, and outputs in dicts are left out."""

    class Named(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.fc(x), "twice": 2 * self.fc(x)}

    hook = smd.Hook(out, save_all=True, save_config=every(1))
    model = Named().bfloat16()
    hook.register_module(model)
    model(torch.ones(2, 3, dtype=torch.bfloat16))["logits"].sum().backward()
    hook.close()
    trial = smd.create_trial(out)
    assert {"Named_output_0", "Named_output_1", "gradient/Named_fc.bias"} <= set(trial.tensor_names())
    assert np.array_equal(trial.tensor("Named_fc.weight").value(0), model.fc.weight.detach().float().numpy())


def test_nothing_that_fails_reaches_the_training(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    hook = smd.Hook(str(tmp_path / "a file" / "out"), save_config=every(1), include_collections=["weights"])
    train(*registered(hook))
    hook.close()


def test_a_model_is_copied_and_saved_without_the_hook(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1))
    model, loss = registered(hook)
    train(model, loss, steps=1)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    copied(torch.ones(2, 3))
    hook.close()
    assert smd.create_trial(out).steps() == [0], "calls of a copy are no steps"


def test_a_model_may_be_compiled_after_it_is_registered(out: str) -> None:
    hook = smd.Hook(out, save_config=every(1), include_collections=["gradients", "weights"])
    model, loss = registered(hook)
    train(torch.compile(model, backend="eager"), loss, steps=4)
    hook.close()
    trial = smd.create_trial(out)
    assert len(trial.steps()) >= 3
    assert trial.tensor("gradient/Net_fc.weight").steps() == trial.tensor("Net_fc.weight").steps() == trial.steps()


def test_a_collection_without_tensors_is_refused_at_the_first_step(out: str) -> None:
    hook = smd.Hook(out)
    model, loss = registered(hook)
    hook.get_collection("mine")
    with pytest.raises(InvalidCollectionConfiguration, match='"mine" has no tensors'):
        train(model, loss)


def test_arguments_that_are_not_modules_are_refused(out: str) -> None:
    hook = smd.Hook(out)
    with pytest.raises(SMDebugError, match="not a torch module"):
        hook.register_module("Net")
    with pytest.raises(SMDebugError, match="record_tensor_value"):
        hook.register_loss(lambda x: x)
    with pytest.raises(AssertionError, match="not a tensor"):
        hook.record_tensor_value("loss", 1.0)
    model, _ = registered(hook)
    with pytest.raises(AssertionError, match="already registered"):
        hook.register_module(model)
    with pytest.raises(SMDebugTypeError, match="is not a Collection"):
        hook.add_collection("mine")


def test_a_folder_in_which_a_training_has_ended_is_refused(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="set out_dir"):
        smd.Hook()
    Path(out).mkdir()
    hook = smd.Hook(out, save_config=every(1))
    train(*registered(hook), steps=1)
    hook.close()
    with pytest.raises(SMDebugRuntimeError, match="finished training"):
        smd.Hook(out)
    monkeypatch.setenv("TRAINING_JOB_NAME", "mine")
    assert smd.Hook(out).out_dir == out, "a job goes on in its own folder"
    with pytest.raises(SMDebugNotImplementedError, match="S3OutputPath"):
        smd.Hook("s3://bucket/tensors")


def test_a_dry_run_leaves_nothing(out: str) -> None:
    hook = smd.Hook(out, dry_run=True, save_all=True, save_config=every(1))
    train(*registered(hook))
    hook.close()
    assert hook.step == 3
    assert not Path(out).exists()


@pytest.mark.parametrize(("include_workers", "workers"), [("one", []), ("all", ["worker_1"])])
def test_other_workers_than_the_first_save_when_all_are_included(
    include_workers: str, workers: list[str], out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    hook = smd.Hook(out, save_config=every(1), include_workers=include_workers)
    train(*registered(hook))
    hook.close()
    assert [file.name.partition(".")[0] for file in Path(out).glob("*.manifest.json")] == workers


def test_the_default_configuration_is_losses_alone(out: str) -> None:
    hook = smd.Hook(out)
    assert hook.has_default_hook_configuration()
    assert hook.has_default_configuration()
    assert not smd.Hook(out, include_collections=["weights"]).has_default_configuration()
    assert hook.save_config == smd.SaveConfig()
    assert hook.reduction_config == smd.ReductionConfig(save_raw_tensor=True)


def test_a_hook_tells_what_it_saves_in_this_step(out: str) -> None:
    hook = smd.Hook(out, save_config=every(2), include_collections=["weights"])
    train(*registered(hook), steps=2)
    assert not hook.should_save_tensor_or_collection("Net_fc.weight", "weights")
    hook.step, hook.mode_steps[modes.GLOBAL] = 2, 2
    assert hook.should_save_tensor_or_collection("Net_fc.weight", "weights")
    assert hook.should_save_tensor_or_collection("Net_fc.weight", "another")
    assert not hook.should_save_tensor_or_collection("Net_fc.bias", "biases")


def test_the_last_hook_is_that_of_the_process(out: str) -> None:
    assert smd.get_hook() is None
    first = smd.Hook(out)
    second = smd.Hook(out)
    assert smd.get_hook() is second
    smd.set_hook(first)
    assert smd.get_hook() is first
    smd.del_hook()
    assert smd.get_hook() is None
    with pytest.raises(SMDebugTypeError, match="is not a hook"):
        smd.set_hook("first")


@pytest.fixture
def of_job(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "debughookconfig.json"
    collections = [
        {
            "CollectionName": "weights",
            "CollectionParameters": {"train.save_interval": "2", "reductions": "mean,l2_norm"},
        },
        {"CollectionName": "relu_output", "CollectionParameters": {"include_regex": ".*relu_output, nothing"}},
        {"CollectionName": "forgotten", "CollectionParameters": None},
    ]
    parameters = {
        "save_interval": "3",
        "save_raw_tensor": "true",
        "include_workers": "all",
        "include_regex": "fc_input",
        "overhead_budget": "5",
    }
    file.write_text(
        json.dumps({"LocalPath": out, "HookParameters": parameters, "CollectionConfigurations": collections})
    )
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(file))
    return file


def test_a_job_configures_the_hook_by_a_file(of_job: Path, out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = smd.Hook.create_from_json_file()
    assert hook.out_dir == out
    assert hook.overhead_budget == 0.05
    assert hook.save_all_workers
    assert hook.include_collections == ["default", "forgotten", "losses", "relu_output", "weights"]
    weights = hook.get_collection("weights")
    assert weights.save_config.get_save_config(modes.TRAIN).save_interval == 2
    assert weights.save_config.get_save_config(modes.EVAL).save_interval == 3
    assert weights.reduction_config == smd.ReductionConfig(["mean"], norms=["l2"])
    hook.set_mode(modes.TRAIN)
    logging.getLogger("smdebug").propagate = True
    train(*registered(hook))
    hook.close()
    assert '"forgotten" has no tensors' in caplog.text, "which is no reason to end a job"
    trial = smd.create_trial(out)
    assert trial.tensor("Net_fc.weight").steps(mode=modes.TRAIN) == [0, 2]
    assert trial.tensor("relu_output_0").steps() == trial.tensor("fc_input_0").steps() == [0, 3]


def test_the_hook_of_a_job_is_created_on_request(of_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smd.get_hook() is None
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert smd.get_hook(create_if_not_exists=True) is None
    monkeypatch.delenv("USE_SMDEBUG")
    hook = smd.get_hook(create_if_not_exists=True)
    assert isinstance(hook, smd.Hook)
    assert smd.get_hook(json_config_path="not looked at") is hook
    smd.del_hook()
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", "/nowhere")
    assert smd.get_hook(create_if_not_exists=True) is None
    with pytest.raises(FileNotFoundError):
        smd.Hook.create_from_json_file()


def test_a_job_has_summaries_for_tensorboard_where_its_file_says(
    of_job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert smd.Hook.create_from_json_file().tensorboard_dir is None
    monkeypatch.setenv("TRAINING_JOB_NAME", "mine")
    file = tmp_path / "tensorboardoutputconfig.json"
    monkeypatch.setenv("TENSORBOARD_CONFIG_FILE_PATH", str(file))
    assert smd.Hook.create_from_json_file().tensorboard_dir is None
    file.write_text(json.dumps({"LocalPath": "/opt/ml/output/tensorboard"}))
    assert smd.Hook.create_from_json_file().tensorboard_dir == "/opt/ml/output/tensorboard"


def test_summaries_for_tensorboard_are_written_outside_of_jobs_too(out: str) -> None:
    hook = smd.Hook(out, save_config=every(2), include_collections=["weights"], export_tensorboard=True)
    train(*registered(hook))
    hook.close()
    (events,) = (Path(out) / "tensorboard" / "GLOBAL").iterdir()
    written = events.read_bytes()
    assert written.count(b"MSELoss_output_0") == 4
    assert written.count(b"weights/Net_fc.weight") == 2


class Follower:
    """Collects steps as a subscriber, like rules, and as an observer, like the flight recorder."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.seen: list[str] = []

    def take(self, step: Step) -> None:
        self.steps.append(step)

    def end(self) -> None:
        self.seen.append("end")

    def begin_step(self, number: int, **_: object) -> None:
        self.seen.append(f"begin {number}")

    def batch(self, model: object, args: tuple[object, ...], kwargs: object) -> None:
        self.seen.append(f"batch of {len(args)}")

    def loss(self, name: str, value: object) -> None:
        self.seen.append(name)

    def end_step(self, number: int) -> None:
        self.seen.append(f"end {number}")


@pytest.fixture
def followed(out: str, tmp_path: Path) -> Iterator[Follower]:
    """A job that saves losses at the first step and has a rule on gradients, with its hook attached."""
    config = tmp_path / "ml" / "input" / "config" / "debughookconfig.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"LocalPath": out}))
    follower = Follower()
    want = TensorRequest(regexes=("^gradient/Net_fc.weight",), probes=(Probe(ZERO_ROWS),))
    attachment.attach(tmp_path / "ml", HookContext([follower], [want], [follower]))
    yield follower
    attachment.take_over()


def test_rules_of_a_job_follow_the_hook_that_a_script_makes(followed: Follower, out: str) -> None:
    hook = smd.Hook(out)
    hook.set_mode(modes.TRAIN)
    train(*registered(hook), steps=3)
    hook.close()
    assert [(step.number, step.mode) for step in followed.steps] == [(number, Mode.TRAIN) for number in range(3)]
    last = followed.steps[-1]
    place = last.table.places["gradient/Net_fc.weight"]
    assert last.statistics[place, Statistic.MEAN_ABS] > 0, "statistics of every step, whatever is saved"
    assert last.measures.tolist() == [0]
    assert followed.seen[:4] == ["begin 0", "batch of 1", "MSELoss_output_0", "end 0"]
    assert followed.seen[-1] == "end"
    trial = smd.create_trial(out)
    assert (trial.steps(), trial.tensor_names()) == ([0], ["MSELoss_output_0"])


def test_traces_and_recomputed_activations_are_not_steps(out: str) -> None:
    class Saving(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=False)

    hook = smd.Hook(out, save_config=every(1), include_regex=["fc_output"])
    model, loss = registered(hook, Saving())
    with pytest.warns(DeprecationWarning, match="jit.trace"):
        torch.jit.trace(model, torch.ones(2, 3), check_trace=False)
    train(model, loss, steps=2)
    hook.close()
    trial = smd.create_trial(out)
    assert trial.steps() == [0, 1]
    assert trial.tensor_names(collection="default") == ["fc_output_0"]
