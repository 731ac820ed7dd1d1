"""A training in Keras on the configured backend, and the trials that it leaves. Its argument is a folder."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from smdebug import modes

from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.instance.hook.configuration import parse_config
from trainyard.instance.hook.keras import KERAS, BatchCallback, attach_to_fitting
from trainyard.instance.hook.recording import HookRecording


def model() -> Any:
    keras.utils.set_random_seed(3)
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(1)])
    made.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return made


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)
    return x, x[:, :1]


def train_with_a_hook(folder: str) -> None:
    """Train with a hook, as a script for smdebug does."""
    import smdebug.tensorflow as smd

    hook = smd.KerasHook(
        out_dir=folder, save_config=smd.SaveConfig(save_interval=2), include_collections=["weights", "biases"]
    )
    trained = model()
    first = trained.get_weights()[0]
    optimizer = hook.wrap_optimizer(trained.optimizer)
    assert optimizer is trained.optimizer
    x, y = data()
    history = trained.fit(x, y, batch_size=8, epochs=2, validation_split=0.25, callbacks=[hook], verbose=0).history
    hook.save_scalar("done", 1)
    trained.predict(x, batch_size=16, callbacks=[hook], verbose=0)
    hook.close()
    trial = smd.create_trial(folder)
    kernels = trial.tensor_names(collection="weights")
    assert [name.rpartition("/")[2] for name in kernels] == ["kernel", "kernel"], kernels
    assert len(trial.tensor_names(collection="biases")) == 2
    assert trial.steps(mode=modes.TRAIN) == [0, 2, 4], trial.steps(mode=modes.TRAIN)
    assert trial.steps(mode=modes.EVAL) == [0]
    assert set(trial.modes()) == {modes.TRAIN, modes.EVAL, modes.PREDICT}
    assert np.array_equal(trial.tensor(kernels[0]).value(0), first), "a weight is saved before the update"
    values = trial.tensor(kernels[0]).values(mode=modes.TRAIN)
    assert not np.array_equal(values[2], values[4]), "weights are current, not those of the last epoch"
    assert "loss" in trial.tensor_names(collection="losses")
    assert trial.tensor_names(collection="metrics") == ["mae"], trial.tensor_names(collection="metrics")
    losses = create_trial(folder).series("loss", mode=Mode.TRAIN)
    assert np.isclose(losses.values[5], history["loss"][1]), "the last batch of an epoch has the loss of the epoch"


def train_without_a_word(folder: str) -> None:
    """Train as a job does with a script that does not know the hook."""
    weights = {"CollectionName": "weights", "CollectionParameters": {"save_interval": "1"}}
    content = {"LocalPath": folder, "CollectionConfigurations": [weights]}
    recording = HookRecording(parse_config(content, framework=KERAS))
    attach_to_fitting(lambda: BatchCallback(recording))
    x, y = data()
    trained = model()
    # Callbacks as a positional argument.
    trained.fit(x, y, 8, 1, 0, [keras.callbacks.TerminateOnNaN()], 0.25)
    trained.evaluate(x, y, batch_size=16, verbose=0)
    recording.close()
    trial = create_trial(folder)
    assert len(trial.series("loss", mode=Mode.TRAIN).steps) == 3
    kernel = trial.tensor(trial.tensor_names(collection="weights")[0])
    first, second, third = kernel.values(Mode.TRAIN).values()
    assert not np.array_equal(first, second), "weights are current on every backend"
    assert not np.array_equal(second, third)
    assert len(trial.series("loss", mode=Mode.EVAL).steps) == 1 + 2, "the evaluation of fit and that of the script"


def train_where_gradients_are_seen(folder: str) -> None:
    """Train with an explicit callback, on the only backend that exposes gradients."""
    saved = [
        {"CollectionName": name, "CollectionParameters": {"save_interval": "1"}} for name in ("weights", "gradients")
    ]
    recording = HookRecording(parse_config({"LocalPath": folder, "CollectionConfigurations": saved}, framework=KERAS))
    x, y = data()
    model().fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[BatchCallback(recording)])
    recording.close()
    trial = create_trial(folder)
    assert len(trial.tensor_names(collection="gradients")) == 4, "of both kernels and both biases"
    (weight, *_) = (trial.tensor(name) for name in trial.tensor_names(collection="weights"))
    gradient = trial.tensor(f"gradient/{weight.name}")
    assert weight.steps() == gradient.steps() == [0, 1, 2, 3]
    for step in (0, 1, 2):
        updated = weight.value(step) - 0.05 * gradient.value(step)
        assert np.allclose(updated, weight.value(step + 1), rtol=0, atol=1e-6), "a gradient belongs to its own step"


def main(folder: str) -> None:
    if keras.backend.backend() == "torch":
        train_where_gradients_are_seen(str(Path(folder) / "gradients"))
    if keras.backend.backend() == "tensorflow":
        train_with_a_hook(str(Path(folder) / "hook"))
    train_without_a_word(str(Path(folder) / "none"))


main(sys.argv[1])
