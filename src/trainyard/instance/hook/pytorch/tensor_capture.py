"""Observes tensors for the open step: reduces them, copies those to be saved, and records losses."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.pytorch import values
from trainyard.instance.hook.pytorch.compiled_layers import CompiledSlots
from trainyard.instance.hook.pytorch.layers import MAX_CALLS_PER_STEP, Layer
from trainyard.instance.hook.pytorch.parameters import ParameterPlan, StepTensors
from trainyard.instance.hook.pytorch.step_reduction import StepReduction
from trainyard.instance.hook.recording import REDUCTION_NAME, HookRecording
from trainyard.instance.hook.selection import SaveRequest, TensorSettings
from trainyard.instance.hook.steps import OpenStep, RawCopy


class TensorCapture:
    """Observes the tensors of a step, on the training thread."""

    def __init__(self, recording: HookRecording) -> None:
        self._recording = recording
        self._reduction = StepReduction(recording)
        self.slots = CompiledSlots(recording)
        # Tuples of one place, cached because reducers expect the same object each time.
        self._single_places: dict[int, tuple[int, ...]] = {}

    def observe_parameters(self, step: OpenStep, plan: ParameterPlan, *, scale: torch.Tensor | None = None) -> None:
        """Observe the planned parameters. Their gradients are still multiplied by `scale`, if it is given."""
        if not plan.entries:
            return
        batch = plan.tensors_of(self._recording, step)
        step.lacks += batch.lacks
        if batch.places:
            self._reduction.reduce(step, batch.places, [entry.tensor for entry in batch.entries])
        if batch.histogram_places:
            self._reduction.reduce(
                step, batch.histogram_places, [entry.tensor for entry in batch.with_histogram], has_histograms=True
            )
        factor = _inverse(scale) if scale is not None else None
        if factor is not None:
            self._unscale(step, batch, factor)
        for entry, place, request in batch.saved:
            tensor = entry.tensor
            if tensor is not None:
                is_scaled = entry.kind is Kind.GRADIENT
                self._save(step, entry.name, tensor, place=place, request=request, factor=factor if is_scaled else None)

    def observe_layer(self, step: OpenStep, layer: Layer, value: Any) -> None:
        """Observe the inputs or outputs of a layer, numbered across its calls in the step."""
        for tensor in values.tensors_in(value):
            number = step.calls.get(layer.key, 0)
            if number >= MAX_CALLS_PER_STEP:
                return
            step.calls[layer.key] = number + 1
            named = layer.tensor(number)
            self._observe(step, named.name, tensor, kind=layer.side.kind, module=layer.module, settings=named.settings)

    def observe_loss(self, step: OpenStep, prefix: str, tensor: torch.Tensor) -> str:
        """Observe a loss under the next name of its module, and return that name."""
        number = step.calls.get(f"{prefix}_output", 0)
        name = f"{prefix}_output_{number}"
        if number >= MAX_CALLS_PER_STEP:
            return name
        step.calls[f"{prefix}_output"] = number + 1
        settings = self._recording.selection.settings(name)
        if tensor.numel() == 1 and tensor.device.type == "cpu":
            if self._recording.is_observed(settings, step) or settings.is_scalar:
                self._recording.set_scalar(step, name, float(tensor), kind=Kind.LOSS)
        else:
            self._observe(step, name, tensor, kind=Kind.LOSS, module="", settings=settings)
        return name

    def observe_custom(self, step: OpenStep, name: str, tensor: torch.Tensor) -> None:
        """Observe a tensor that the program provides, which is always saved."""
        settings = self._recording.selection.settings(name)
        request = self._recording.save_request(settings, step) or SaveRequest(is_raw=True)
        place = self._place(step, name, tensor, kind=Kind.CUSTOM)
        self._reduction.reduce(step, self._single_place(place), [tensor])
        if self._recording.is_writing:
            self._save(step, name, tensor, place=place, request=request)

    def finish(self, step: OpenStep) -> None:
        """Finish the step's numbers."""
        self.slots.read_into(step)
        if not self._reduction.finish(step):
            step.lacks += len(self._recording.table.current.tensors)

    def _observe(
        self, step: OpenStep, name: str, tensor: torch.Tensor, *, kind: Kind, module: str, settings: TensorSettings
    ) -> None:
        request = self._recording.save_request(settings, step)
        is_due = request is not None or kind is Kind.LOSS
        if not is_due and not self._recording.is_observed(settings, step):
            return
        place = self._place(step, name, tensor, kind=kind, module=module)
        has_histogram = request is not None and request.has_histogram
        self._reduction.reduce(step, self._single_place(place), [tensor], has_histograms=has_histogram)
        if request is not None:
            self._save(step, name, tensor, place=place, request=request)

    def _place(self, step: OpenStep, name: str, tensor: torch.Tensor, *, kind: Kind, module: str = "") -> int:
        table = self._recording.table
        place = table.place(name)
        if place is None:
            (place,) = table.add([values.describe(name, kind, tensor, module=module)])
        else:
            self._recording.fit(step, place, values.local(tensor).shape)
        return place

    def _single_place(self, place: int) -> tuple[int, ...]:
        return self._single_places.setdefault(place, (place,))

    def _save(
        self,
        step: OpenStep,
        name: str,
        tensor: torch.Tensor,
        *,
        place: int,
        request: SaveRequest,
        factor: Callable[[], float] | None = None,
    ) -> None:
        step.saved.add(place)
        self._recording.throttle.exempt()
        try:
            for word in request.extras:
                self._keep(
                    step, REDUCTION_NAME.format(word, name), 8, functools.partial(values.reduce_values, word, tensor)
                )
            if request.is_raw:
                size = values.size_bytes(tensor)
                self._keep(step, name, size, functools.partial(values.copy_values, tensor, factor=factor))
        except torch.cuda.OutOfMemoryError:
            self._recording.note(
                "The device has no memory left to copy tensors that should be saved; they are dropped."
            )

    def _keep(self, step: OpenStep, name: str, size_bytes: int, copy: Callable[[], RawCopy]) -> None:
        if self._recording.has_room(step, size_bytes):
            step.values[name] = copy()

    @staticmethod
    def _unscale(step: OpenStep, batch: StepTensors, factor: Callable[[], float]) -> None:
        for entries, places in ((batch.entries, batch.places), (batch.with_histogram, batch.histogram_places)):
            for entry, place in zip(entries, places, strict=True):
                if entry.kind is Kind.GRADIENT:
                    step.factors[place] = factor


def _inverse(scale: torch.Tensor) -> Callable[[], float]:
    """Return a function for 1 / scale, computed once and on the writer thread, since `scale` may be on a device."""
    copy = scale.detach().clone()
    wait = values.completion_of(copy)

    @functools.cache
    def inverse() -> float:
        wait()
        return 1.0 / float(copy)

    return inverse
