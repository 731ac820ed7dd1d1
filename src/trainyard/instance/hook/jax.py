"""Steps of a JAX training, as the program tells them: a compiled function shows nothing of itself to others.

    hook = JaxHook("/tmp/tensors", collections=["weights", "gradients"])
    for batch in batches:
        loss, grads = value_and_grad(params, batch)
        hook.step(params=params, grads=grads, loss=loss)
        params = update(params, grads)

A leaf of the parameters is `params/<path>`, its gradient `gradient/params/<path>`, the loss `loss`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook import attaching
from trainyard.instance.hook.by_hand import CollectionParameters, Collections, asked
from trainyard.instance.hook.collecting import ALL, DEFAULT, LOSSES, Collection, Framework
from trainyard.instance.hook.configuration import HookConfig, load_config, parse_config
from trainyard.instance.hook.contract import StepRecording
from trainyard.instance.hook.recording import SCALAR, Recording
from trainyard.link.told import HOOK_CONFIG

JAX = Framework(
    "jax",
    (
        Collection(ALL, (".*",)),
        Collection(DEFAULT),
        Collection("weights", (r"^params/(?!.*(bias|/b)$)",)),
        Collection("biases", (r"^params/.*(bias|/b)$",)),
        Collection("gradients", ("^gradient/",)),
        Collection(LOSSES, ("^loss$",)),
        Collection("optimizer_variables", ("^optimizer/",)),
        Collection("outputs", ("^outputs/",)),
    ),
    frozenset({LOSSES}),
)

_BIASES = ("bias", "/b")


class JaxHook:
    """Captures what a program tells of its steps into a folder; arguments are those of `trainyard.hook.Hook`.

    Only what is asked of a step is brought from the device, and waited for. What fails is noted and ends the capture.
    """

    def __init__(
        self, folder: str | Path, *, collections: Collections = (), parameters: CollectionParameters | None = None
    ) -> None:
        content = asked(folder, collections=collections, parameters=parameters)
        self._start(parse_config(content, framework=JAX))

    @classmethod
    def of_job(cls, ml: str | Path = "/opt/ml") -> Self:
        """With the configuration of the job that this program is; one that has none captures losses."""
        hook = cls.__new__(cls)
        hook._start(load_config(Path(ml) / HOOK_CONFIG, framework=JAX) or parse_config({}, framework=JAX))
        return hook

    def step(
        self,
        *,
        params: Any = None,
        grads: Any = None,
        loss: Any = None,
        optimizer_state: Any = None,
        outputs: Any = None,
        scalars: Mapping[str, Any] | None = None,
        mode: Mode | str = Mode.TRAIN,
    ) -> None:
        """A step, with what is at hand of it: trees of arrays, and numbers."""
        if self._recording.is_off:
            return
        trees = (
            ("params", params, Kind.WEIGHT),
            ("gradient/params", grads, Kind.GRADIENT),
            ("optimizer", optimizer_state, Kind.OPTIMIZER),
            ("outputs", outputs, Kind.OUTPUT),
        )
        try:
            self._recording.begin(Mode(mode))
            for prefix, tree, kind in trees:
                _give_tree(self._recording, prefix, tree=tree, kind=kind)
            if loss is not None:
                self._recording.give_scalar("loss", float(np.mean(np.asarray(loss, np.float64))), kind=Kind.LOSS)
            for name, value in (scalars or {}).items():
                self._recording.give_scalar(f"{SCALAR}{name}", float(value))
            self._recording.finish()
        except Exception as error:  # whatever it is, the training goes on
            self._recording.fail(error)

    def close(self) -> None:
        """Write what is left and mark the end; done by itself when the program ends."""
        self._recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, config: HookConfig) -> None:
        self._recording = Recording(config, attaching.take_over("jax"))


def _give_tree(recording: StepRecording, prefix: str, *, tree: Any, kind: Kind) -> None:
    for name, leaf in _leaves(prefix, tree):
        own = Kind.BIAS if kind is Kind.WEIGHT and name.endswith(_BIASES) else kind
        if recording.is_wanted(name, own):
            recording.give(name, np.asarray(leaf), kind=own, module=name.removeprefix(f"{prefix}/").rpartition("/")[0])


def _leaves(prefix: str, tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "dtype"):
            yield "/".join((prefix, *(_word(key) for key in path))), leaf


def _word(key: Any) -> str:
    """A step of a path: the key of a dict, the name of a field, or the place in a list."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
