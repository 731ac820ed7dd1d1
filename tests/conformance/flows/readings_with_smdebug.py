"""Runs typical scripts for smdebug one after another, and prints what their trials report, as JSON.

Its argument is a folder for the output of the hooks. It does not know whose `smdebug` it imports.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug import modes
from smdebug.analysis.utils import no_refresh
from smdebug.core.tensor import StepState
from smdebug.exceptions import NoMoreData, RuleEvaluationConditionMet, SMDebugError
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody has it


class Net(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Layers with names for regexes to match; one of them is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 5)
        self.relu1 = nn.ReLU()
        self.shared = nn.Linear(5, 5, bias=False)
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.fc1(x))
        x = self.shared(self.relu1(self.shared(x)))
        return self.head(x)


class Pair(nn.Module):  # type: ignore[misc]
    """Returns nested tuples and lists, and takes a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, list[torch.Tensor]]:
        left, right = self.left(x), self.right(x) * scale
        return left + right, [left, right]


class Recurrent(nn.Module):  # type: ignore[misc]
    """A module of torch whose output is a tensor and a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(x.reshape(-1, 2, 3))
        return self.out(hidden[:, -1])


def train(
    hook: Any,
    model: nn.Module,
    *,
    steps: int = 6,
    accumulate: int = 1,
    loss: Any = None,
    each: Callable[[int], None] | None = None,
) -> None:
    """Run a typical training loop. If `loss` is None, use a functional one and report it to the hook."""
    data = torch.Generator().manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = torch.randn(4, 6, generator=data), torch.randint(0, 3, (4,), generator=data)
        out = model(x)
        out = out[0] if isinstance(out, tuple) else out
        if loss is None:
            value = F.cross_entropy(out, y)
            hook.record_tensor_value("functional_loss", value)
        else:
            value = loss(out, y)
        value.backward()
        if each:
            each(step)
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


def evaluate(model: nn.Module, loss: nn.Module, steps: int = 3) -> None:
    data = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for _ in range(steps):
            loss(model(torch.randn(4, 6, generator=data)), torch.randint(0, 3, (4,), generator=data))


def registered(hook: Any, model: nn.Module | None = None) -> tuple[nn.Module, nn.Module]:
    model, loss = model or Net(), nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(loss)
    return model, loss


def losses_alone(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=2))
    model, loss = registered(hook)
    train(hook, model, loss=loss)
    hook.close()


def the_usual_collections(out: str) -> None:
    hook = smd.Hook(
        out_dir=out,
        save_config=smd.SaveConfig(save_interval=2, save_steps=[3]),
        include_collections=["weights", "biases", "gradients", "losses"],
    )
    model, loss = registered(hook)
    train(hook, model, loss=loss)
    hook.close()


def everything(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_all=True, save_config=smd.SaveConfig(save_interval=3))
    model, loss = registered(hook)
    train(hook, model, loss=loss)
    hook.close()


def modes_with_steps_of_their_own(out: str) -> None:
    hook = smd.Hook(
        out_dir=out,
        save_config={
            modes.TRAIN: smd.SaveConfigMode(save_interval=2),
            modes.EVAL: smd.SaveConfigMode(save_interval=1, start_step=1, end_step=5),
        },
        include_collections=["weights", "gradients", "losses"],
    )
    model, loss = registered(hook)
    for _ in range(2):
        hook.set_mode(modes.TRAIN)
        train(hook, model, loss=loss, steps=4)
        hook.set_mode(modes.EVAL)
        evaluate(model, loss)
    hook.close()


def collections_of_ones_own(out: str) -> None:
    hook = smd.Hook(out_dir=out, include_collections=["relus", "tails", "modules", "named"])
    hook.get_collection("relus").include(["relu1_input", "relu1_output"])
    hook.get_collection("relus").save_config = smd.SaveConfig(save_interval=3)
    hook.add_collection(
        smd.Collection(
            "tails", include_regex=["head"], save_config=smd.SaveConfig(save_interval=5, start_step=2, end_step=6)
        )
    )
    hook.get_collection("named").tensor_names = ["gradient/Net_fc1.bias"]
    hook.get_collection("named").save_config = smd.SaveConfig(save_interval=2)
    model, loss = registered(hook)
    hook.get_collection("modules").add_module_tensors(model.shared, inputs=True, outputs=True)
    hook.get_collection("modules").save_config = smd.SaveConfig(save_interval=4)
    train(hook, model, loss=loss, steps=7)
    hook.close()


def regexes_of_the_hook(out: str) -> None:
    hook = smd.Hook(out_dir=out, include_regex=["relu", "fc1.weight"], save_config=smd.SaveConfig(save_interval=4))
    model, loss = registered(hook)
    train(hook, model, loss=loss)
    hook.close()


def reductions_instead_of_values(out: str) -> None:
    everything = ["min", "max", "mean", "std", "variance", "sum", "prod"]
    hook = smd.Hook(
        out_dir=out,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "gradients", "losses"],
        reduction_config=smd.ReductionConfig(everything, everything, ["l1", "l2"], ["l1", "l2"]),
    )
    model, loss = registered(hook)
    train(hook, model, loss=loss, steps=4)
    hook.close()


def reductions_beside_values(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=2), include_collections=["biases"])
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["mean"], norms=["l2"], save_raw_tensor=True)
    model, loss = registered(hook)
    train(hook, model, loss=loss, steps=4)
    hook.close()


def shapes_beside_reductions(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=2), include_collections=["biases"])
    hook.get_collection("biases").reduction_config = smd.ReductionConfig(["mean"], save_shape=True)
    model, loss = registered(hook)
    train(hook, model, loss=loss, steps=4)
    hook.close()


def nested_outputs(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_all=True, save_config=smd.SaveConfig(save_interval=2))
    model, loss = registered(hook, Pair())
    train(hook, model, loss=loss, steps=4)
    hook.close()


def recurrent_layers(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_all=True, save_config=smd.SaveConfig(save_interval=2))
    model, loss = registered(hook, Recurrent())
    train(hook, model, loss=loss, steps=4)
    hook.close()


def accumulated_gradients(out: str) -> None:
    hook = smd.Hook(
        out_dir=out, include_collections=["gradients", "weights"], save_config=smd.SaveConfig(save_interval=1)
    )
    model, loss = registered(hook)
    train(hook, model, loss=loss, steps=6, accumulate=3)
    hook.close()


def frozen_layers(out: str) -> None:
    hook = smd.Hook(
        out_dir=out, include_collections=["gradients", "weights"], save_config=smd.SaveConfig(save_interval=2)
    )
    model = Net()
    for parameter in model.fc1.parameters():
        parameter.requires_grad = False
    model, loss = registered(hook, model)
    train(hook, model, loss=loss, steps=4)
    hook.close()


def scalars_of_ones_own(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=1), include_collections=["mine"])
    hook.get_collection("mine").include("never")
    model, loss = registered(hook)

    def tell(step: int) -> None:
        hook.save_scalar("accuracy", 0.5 + step / 100)
        hook.save_scalar("count", step, sm_metric=True)

    train(hook, model, loss=loss, steps=4, each=tell)
    hook.close()


def tensors_of_ones_own(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=1))
    model, loss = registered(hook)

    def tell(step: int) -> None:
        hook.save_tensor("mine", torch.full((2, 3), float(step)))
        hook.save_tensor("theirs", np.arange(step + 1), collections_to_write="other")

    hook.save_tensor("early", [1.0, 2.0])
    hook.get_collection("other").include("never")
    data = torch.Generator().manual_seed(7)
    for step in range(3):
        tell(step)
        loss(model(torch.randn(4, 6, generator=data)), torch.tensor([0, 1, 2, 0])).backward()
    hook.close()


def functional_losses(out: str) -> None:
    hook = smd.Hook(out_dir=out, save_config=smd.SaveConfig(save_interval=2))
    model = Net()
    hook.register_module(model)
    train(hook, model, steps=5)
    hook.close()


def a_job_with_a_file(out: str) -> None:
    file = Path(out).with_suffix(".json")
    file.write_text(
        json.dumps(
            {
                "LocalPath": out,
                "S3OutputPath": "s3://nobody/reads/this",
                "HookParameters": {"train.save_interval": "2", "eval.save_interval": "1", "save_steps": "5"},
                "CollectionConfigurations": [
                    {"CollectionName": "weights", "CollectionParameters": {"save_histogram": "True"}},
                    {"CollectionName": "losses"},
                    {
                        "CollectionName": "relu_output",
                        "CollectionParameters": {"include_regex": ".*relu1_output", "train.save_interval": "4"},
                    },
                ],
            }
        )
    )
    os.environ["SMDEBUG_CONFIG_FILE_PATH"] = str(file)
    hook = smd.Hook.create_from_json_file()
    assert smd.get_hook() is hook
    model, loss = registered(hook)
    hook.set_mode(modes.TRAIN)
    train(hook, model, loss=loss)
    hook.set_mode(modes.EVAL)
    evaluate(model, loss)
    hook.close()


SCRIPTS = (
    losses_alone,
    the_usual_collections,
    everything,
    modes_with_steps_of_their_own,
    collections_of_ones_own,
    regexes_of_the_hook,
    reductions_instead_of_values,
    reductions_beside_values,
    shapes_beside_reductions,
    nested_outputs,
    recurrent_layers,
    accumulated_gradients,
    frozen_layers,
    scalars_of_ones_own,
    tensors_of_ones_own,
    functional_losses,
    a_job_with_a_file,
)


class LargeWeights(Rule):  # type: ignore[misc]  # nor smdebug
    """A rule as in the developer guide."""

    def __init__(self, base_trial: Any, threshold: str = "0.4") -> None:
        super().__init__(base_trial, "")
        self.threshold = float(threshold)

    def set_required_tensors(self, step: int) -> None:
        for name in self.base_trial.tensor_names(collection="weights"):
            self.req_tensors.add(name, steps=[step])

    def invoke_at_step(self, step: int) -> bool:
        return any(tensor.reduction_value(step, "max", abs=True) > self.threshold for tensor in self.req_tensors.get())


def told_by(trial: Any) -> dict[str, Any]:
    """Return everything that a trial reports, by the calls of its interface."""
    return {
        "tensor_names": trial.tensor_names(),
        "steps": {mode.name: trial.steps(mode=mode) for mode in modes},
        "modes": sorted(mode.name for mode in trial.modes()),
        "workers": trial.workers(),
        "collections": {
            name: sorted(trial.tensor_names(collection=name))
            for name, collection in sorted(trial.collections().items())
            if collection.include_regex or collection.tensor_names
        },
        "has_loaded_all": trial.loaded_all_steps,
        "of_modes": {str(step): [trial.mode(step).name, trial.mode_step(step)] for step in trial.steps()},
        "by_regex": trial.tensor_names(regex=["weight", "loss"]),
        "of_steps": {str(step): trial.tensor_names(step=step) for step in trial.steps()},
        "tensors": {name: told_by_tensor(trial.tensor(name)) for name in trial.tensor_names()},
    }


def told_by_tensor(tensor: Any) -> dict[str, Any]:
    steps = tensor.steps()
    return {
        "steps": {mode.name: tensor.steps(mode=mode) for mode in modes},
        "values": {str(step): tried(partial(tensor.value, step)) for step in steps},
        "shapes": {str(step): tried(partial(tensor.shape, step)) for step in steps},
        "reductions": {
            str(step): {
                f"{'abs_' if is_abs else ''}{name}": np.asarray(value).reshape(-1).tolist()
                for (name, is_abs), value in sorted(tensor.reduction_values(step).items())
            }
            for step in steps
        },
        "mean": {str(step): tried(partial(tensor.reduction_value, step, "mean")) for step in steps},
        "workers": tensor.workers(steps[0]),
        "previous": tensor.prev_steps(steps[-1], 2),
    }


def tried(ask: Callable[[], Any]) -> Any:
    """Return the answer, or the name of the exception."""
    try:
        answer = ask()
    except SMDebugError as error:
        return type(error).__name__
    return answer.tolist() if isinstance(answer, np.ndarray | np.generic) else answer


def asked_for_what_is_not_there(trial: Any) -> dict[str, Any]:
    name = trial.tensor_names()[0]
    with no_refresh(trial):
        return {
            "tensor": tried(lambda: trial.tensor("nothing of this name")),
            "step passed over": tried(lambda: trial.tensor(name).value(1)),
            "step to come": tried(lambda: trial.wait_for_steps([1000])),
            "passed step": tried(lambda: trial.wait_for_steps([1])),
            "worker": tried(lambda: trial.tensor(name).value(trial.steps()[0], worker="worker_9")),
            "states": [StepState(trial.has_passed_step(step)).name for step in (0, 1, 2, 1000)],
        }


def judged(trial: Any) -> dict[str, Any]:
    """Run a rule on a trial in each possible way, and return the results."""
    try:
        invoke_rule(LargeWeights(trial), raise_eval_cond=True)
    except RuleEvaluationConditionMet as found:
        first = found.step
    try:
        invoke_rule(LargeWeights(trial, threshold="100"))
    except NoMoreData as ended:
        last = ended.last_step
    return {"first": first, "last": last, "before": invoke_rule(LargeWeights(trial), end_step=first)}


def main(folder: str) -> None:
    told: dict[str, Any] = {}
    for script in SCRIPTS:
        out = str(Path(folder) / script.__name__)
        torch.manual_seed(5)
        script(out)
        smd.del_hook()
        trial = create_trial(out)
        told[script.__name__] = told_by(trial)
        if script is the_usual_collections:
            told["not there"] = asked_for_what_is_not_there(trial)
            told["judged"] = judged(trial)
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
