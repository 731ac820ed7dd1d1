"""A training in JAX that reports its steps, and the trial that it leaves. Its argument is a folder."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.instance.hook.jax import JaxHook


def loss_of(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["layers"][0]["kernel"] + params["layers"][0]["bias"])
    return jnp.mean((hidden @ params["out"]["kernel"] - y) ** 2)


def main(folder: str) -> None:
    made = np.random.default_rng(1)
    x, y = made.normal(size=(16, 3)).astype(np.float32), made.normal(size=(16, 2)).astype(np.float32)
    params: Any = {
        "layers": [{"kernel": jnp.asarray(made.normal(size=(3, 4))), "bias": jnp.zeros(4)}],
        "out": {"kernel": jnp.asarray(made.normal(size=(4, 2)), jnp.bfloat16)},
    }
    small = params["out"]["kernel"]
    step = jax.jit(jax.value_and_grad(loss_of))
    before, told = [], []
    with JaxHook(folder, collections={"weights": {"save_interval": 2}, "gradients": {"save_interval": 2}}) as hook:
        for _ in range(5):
            loss, grads = step(params, x, y)
            hook.step(params=params, grads=grads, loss=loss, scalars={"rate": 0.1})
            before.append(np.asarray(params["layers"][0]["kernel"]))
            told.append(float(loss))
            params = jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad.astype(leaf.dtype), params, grads)
        hook.step(loss=loss_of(params, x, y), mode="EVAL")
        hook.step(params={"unfit": object()}, loss="no number")
        hook.step(loss=1.0)
    trial = create_trial(folder)
    weights = ["params/layers/0/kernel", "params/out/kernel"]
    assert trial.tensor_names(collection="weights") == weights, trial.tensor_names()
    assert trial.tensor_names(collection="biases", known=True) == [], "biases were not requested"
    assert trial.tensor_names(collection="gradients")[0] == "gradient/params/layers/0/bias"
    assert trial.tensors()[weights[0]].kind is Kind.WEIGHT
    assert trial.tensors()[weights[1]].dtype == "bfloat16"
    assert trial.tensor(weights[0]).steps() == [0, 2, 4]
    assert np.array_equal(trial.tensor(weights[1]).value(0), np.asarray(small, np.float32))
    assert all(np.array_equal(trial.tensor(weights[0]).value(at), before[at]) for at in (0, 2, 4))
    assert trial.series("loss", mode=Mode.TRAIN).values.tolist() == told
    assert len(trial.series("gradient/params/out/kernel", "l2").steps) == 5, "every step has its statistics"
    assert trial.steps(Mode.EVAL) == [0]
    assert trial.tensor("scalar/rate").steps() == [0, 1, 2, 3, 4]
    assert trial.steps() == [0, 1, 2, 3, 4, 5], "invalid values end the capture, not the training"


main(sys.argv[1])
