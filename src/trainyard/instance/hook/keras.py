"""A hook for Keras 3, on any backend: a callback that records every batch.

A step is a batch of `fit`, `evaluate` or `predict`, which set the mode. A weight is named by its path, such as
`sequential/dense/kernel`, and recorded before the update. The loss and the metrics are Keras's own: means over the
epoch so far. Gradients are observed on the torch backend only; elsewhere they never leave a compiled function.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook.contract import StepRecording
from trainyard.instance.hook.selection import ALL, DEFAULT, LOSSES, Collection, FrameworkDefaults

log = logging.getLogger(__name__)

METRICS = "metrics"
KERAS = FrameworkDefaults(
    "keras",
    (
        Collection(ALL, (".*",)),
        Collection(DEFAULT),
        Collection("weights", (r"^(?!gradient/|optimizer/|scalar/).*/(?!bias$|beta$)[^/]+$",)),
        Collection("biases", (r"^(?!gradient/|optimizer/|scalar/).*/(bias|beta)$",)),
        Collection("gradients", ("^gradient/",)),
        Collection(LOSSES, (r"^([^/]+_)?loss$",)),
        Collection(METRICS, (r"^(?!([^/]+_)?loss$)[^/]+$",)),
        Collection("optimizer_variables", ("^optimizer/",)),
    ),
    frozenset({LOSSES, METRICS}),
)

Logs = Mapping[str, Any] | None


class BatchCallback(keras.callbacks.Callback):  # type: ignore[misc]  # mypy does not read Keras
    """Records every batch of a training. A failure is logged once and ends the recording."""

    def __init__(self, recording: StepRecording | None = None) -> None:
        super().__init__()
        self.recording = recording
        self._open: StepRecording | None = None
        self._has_failed = False

    def open_step(self, mode: Mode) -> StepRecording | None:
        """Begin a step and return its recording, or None if nothing is recorded."""
        if self.recording is not None:
            self.recording.begin(mode)
        return self.recording

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._begin(Mode.TRAIN)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._end(logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._begin(Mode.EVAL)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._end(logs)

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        self._begin(Mode.PREDICT)

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        # The logs of a prediction hold the predictions themselves.
        self._end(None)

    def _begin(self, mode: Mode) -> None:
        self._open = None if self._has_failed else self.open_step(mode)
        self._guard(self._observe_weights)

    def _end(self, logs: Logs) -> None:
        self._guard(self._observe_gradients)
        self._guard(lambda recording: _observe_numbers(recording, logs or {}))
        self._guard(lambda recording: recording.finish())
        self._open = None

    def _guard(self, work: Callable[[StepRecording], None]) -> None:
        if self._open is None:
            return
        try:
            work(self._open)
        # Whatever failed, the training must continue.
        except Exception:
            log.warning("a batch could not be recorded; recording has stopped", exc_info=True)
            self._open, self._has_failed = None, True

    def _observe_weights(self, recording: StepRecording) -> None:
        wanted = [(name, variable, kind) for name, variable, kind in self._weights() if recording.is_wanted(name, kind)]
        if wanted:
            self._synchronise()
        for name, variable, kind in wanted:
            recording.observe(name, keras.ops.convert_to_numpy(variable), kind=kind, module=name.rpartition("/")[0])

    def _observe_gradients(self, recording: StepRecording) -> None:
        for weight, variable, _ in self._weights():
            # Only torch's tensors have a gradient.
            gradient, name = getattr(variable.value, "grad", None), f"gradient/{weight}"
            if gradient is not None and recording.is_wanted(name, Kind.GRADIENT):
                array = keras.ops.convert_to_numpy(gradient)
                recording.observe(name, array, kind=Kind.GRADIENT, module=weight.rpartition("/")[0])

    def _weights(self) -> Iterator[tuple[str, Any, Kind]]:
        for variable in self.model.trainable_weights:
            is_bias = variable.path.endswith(("/bias", "/beta"))
            yield variable.path, variable, Kind.BIAS if is_bias else Kind.WEIGHT

    def _synchronise(self) -> None:
        """Update the model's weights on the JAX backend, where they otherwise stay those from before the epoch."""
        synchronise = getattr(self.model, "jax_state_sync", None)
        if synchronise is not None:
            synchronise()


def _observe_numbers(recording: StepRecording, logs: Mapping[str, Any]) -> None:
    for name, value in logs.items():
        kind = Kind.LOSS if name == "loss" or name.endswith("_loss") else Kind.OUTPUT
        recording.observe_scalar(name, float(np.mean(np.asarray(value, np.float64))), kind=kind)


def runs_on_torch() -> bool:
    return str(keras.backend.backend()) == "torch"


def attach_to_fitting(make_callback: Callable[[], BatchCallback]) -> None:
    """Add a callback to every `fit`, `evaluate` and `predict` of this process that does not bring one of this kind."""
    for name in ("fit", "evaluate", "predict"):
        setattr(keras.Model, name, _with_callback(getattr(keras.Model, name), make_callback))


def _with_callback(run: Callable[..., Any], make_callback: Callable[[], BatchCallback]) -> Callable[..., Any]:
    signature = inspect.signature(run)

    @functools.wraps(run)
    def run_with_callback(*args: Any, **options: Any) -> Any:
        call = signature.bind(*args, **options)
        given = call.arguments.get("callbacks")
        # `fit` also passes a CallbackList to its own `evaluate`.
        if isinstance(given, keras.callbacks.CallbackList):
            if not any(isinstance(each, BatchCallback) for each in given.callbacks):
                given.append(make_callback())
        else:
            listed = list(given) if isinstance(given, list | tuple) else [given] if given is not None else []
            if not any(isinstance(each, BatchCallback) for each in listed):
                call.arguments["callbacks"] = [*listed, make_callback()]
        return run(*call.args, **call.kwargs)

    return run_with_callback
