"""A hook for JAX. The program reports its steps, because nothing inside a compiled function can be observed.

    hook = JaxHook("/tmp/tensors", collections=["weights", "gradients"])
    for batch in batches:
        loss, grads = value_and_grad(params, batch)
        hook.step(params=params, grads=grads, loss=loss)
        params = update(params, grads)

A leaf of the parameters is named `params/<path>`, its gradient `gradient/params/<path>`, the loss `loss`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook import attachment
from trainyard.instance.hook.configuration import HookConfig, load_config, parse_config
from trainyard.instance.hook.contract import StepRecording
from trainyard.instance.hook.recording import SCALAR_PREFIX, HookRecording
from trainyard.instance.hook.script_hook import CollectionParameters, Collections, hook_config_content
from trainyard.instance.hook.selection import ALL, DEFAULT, LOSSES, Collection, FrameworkDefaults
from trainyard.link.event_protocol import HOOK_CONFIG

JAX = FrameworkDefaults(
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

_BIAS_SUFFIXES = ("bias", "/b")


class JaxHook:
    """Captures the steps that a program reports into a folder. Its arguments are those of `trainyard.hook.Hook`.

    Only the tensors that a step needs are copied from the device, which blocks until they arrive. A failure is noted
    and ends the capture.
    """

    def __init__(
        self, folder: str | Path, *, collections: Collections = (), parameters: CollectionParameters | None = None
    ) -> None:
        content = hook_config_content(folder, collections=collections, parameters=parameters)
        self._start(parse_config(content, framework=JAX))

    @classmethod
    def of_job(cls, ml: str | Path = "/opt/ml") -> Self:
        """Create a hook with the configuration of this program's job, or for losses only if it has none."""
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
        """Record a step, with whatever is available: pytrees of arrays, and numbers."""
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
                _observe_tree(self._recording, prefix, tree=tree, kind=kind)
            if loss is not None:
                self._recording.observe_scalar("loss", float(np.mean(np.asarray(loss, np.float64))), kind=Kind.LOSS)
            for name, value in (scalars or {}).items():
                self._recording.observe_scalar(f"{SCALAR_PREFIX}{name}", float(value))
            self._recording.finish()
        # Whatever failed, the training must continue.
        except Exception as error:
            self._recording.fail(error)

    def close(self) -> None:
        """Write the remaining steps and mark the end. Called automatically when the program exits."""
        self._recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, config: HookConfig) -> None:
        self._recording = HookRecording(config, attachment.take_over("jax"))


def _observe_tree(recording: StepRecording, prefix: str, *, tree: Any, kind: Kind) -> None:
    for name, leaf in _leaves(prefix, tree):
        own = Kind.BIAS if kind is Kind.WEIGHT and name.endswith(_BIAS_SUFFIXES) else kind
        if recording.is_wanted(name, own):
            recording.observe(
                name, np.asarray(leaf), kind=own, module=name.removeprefix(f"{prefix}/").rpartition("/")[0]
            )


def _leaves(prefix: str, tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "dtype"):
            yield "/".join((prefix, *(_key_name(key) for key in path))), leaf


def _key_name(key: Any) -> str:
    """Return one part of a path: the key of a dict, the name of a field, or the index in a list."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
