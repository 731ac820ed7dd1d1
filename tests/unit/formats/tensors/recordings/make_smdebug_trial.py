"""Makes the trial in smdebug_trial/ anew, with smdebug itself, and what its own reader says of it.

It runs in the environment that `python -m tests.conformance.environments smdebug` makes:

    .environments/smdebug/bin/python tests/unit/formats/tensors/recordings/make_smdebug_trial.py
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import smdebug.pytorch as smd
import torch
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.trials import create_trial

TRIAL = Path(__file__).with_name("smdebug_trial")
MODES = (ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL)
EXPECTED = Path(__file__).with_name("smdebug_expected.json")


def main() -> None:
    os.environ["SMDEBUG_TRAINING_END_DELAY_REFRESH"] = "0"
    shutil.rmtree(TRIAL, ignore_errors=True)
    train()
    add_texts()
    trial = create_trial(str(TRIAL))
    EXPECTED.write_text(json.dumps(told(trial), indent=1, sort_keys=True) + "\n")


def train() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    loss = torch.nn.MSELoss()
    hook = smd.Hook(
        out_dir=str(TRIAL),
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "gradients", "losses"],
    )
    reductions = smd.ReductionConfig(reductions=["min", "mean"], abs_reductions=["mean"], norms=["l2"], save_shape=True)
    hook.get_collection("gradients").reduction_config = reductions
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batch, wanted = torch.randn(4, 3), torch.randn(4, 1)
    for epoch in range(2):
        hook.set_mode(ModeKeys.TRAIN)
        for number in range(3):
            optimizer.zero_grad()
            loss(net(batch), wanted).backward()
            optimizer.step()
            hook.save_scalar("accuracy", 0.5 + number)
        hook.save_tensor("ids", np.array([[epoch, 7]]))
        hook.set_mode(ModeKeys.EVAL)
        with torch.no_grad():
            loss(net(batch), wanted)
    hook.close()


def add_texts() -> None:
    """Texts, as the hook for XGBoost saves hyperparameters."""
    writer = FileWriter(trial_dir=str(TRIAL), step=9, worker="worker_0")
    texts = np.array(["reg:squarederror", "5"])
    writer.write_tensor(tdata=texts, tname="hyperparameters/texts", mode=ModeKeys.TRAIN, mode_step=6)
    writer.close()


def told(trial: Any) -> dict[str, Any]:
    names = trial.tensor_names()
    tensors = {name: trial.tensor(name) for name in names}
    return {
        "steps": {mode.name: trial.steps(mode) for mode in MODES},
        "names": {
            mode.name: trial.tensor_names(mode=mode) for mode in (ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL)
        },
        "names_at": {step: trial.tensor_names(step=step) for step in trial.steps()},
        "steps_of": {name: tensor.steps() for name, tensor in tensors.items()},
        "values": {name: [(step, plain(tensor, step)) for step in tensor.steps()] for name, tensor in tensors.items()},
        "collections": {name: sorted(each.tensor_names) for name, each in trial.collections().items()},
        "prev_steps": tensors[names[-1]].prev_steps(5, 2),
    }


def plain(tensor: Any, step: int) -> Any:
    """The values of a tensor in a step, or its reductions where it has no values."""
    try:
        value = np.asarray(tensor.value(step))
    except TensorUnavailableForStep:
        found = [[name, is_abs, float(value)] for (name, is_abs), value in tensor.reduction_values(step).items()]
        return {"reductions": found, "shape": list(tensor.shape(step))}
    return {"value": value.tolist(), "dtype": value.dtype.name}


if __name__ == "__main__":
    main()
