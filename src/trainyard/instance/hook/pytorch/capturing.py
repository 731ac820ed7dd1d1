"""Takes tensors into the step that is open: statistics, copies of what is saved, losses."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.collecting import Choice, Saved
from trainyard.instance.hook.pytorch import values
from trainyard.instance.hook.pytorch.compiled import Slots
from trainyard.instance.hook.pytorch.layers import MOST_CALLS, Layer
from trainyard.instance.hook.pytorch.parameters import Batch, Plan
from trainyard.instance.hook.pytorch.taking import Taking
from trainyard.instance.hook.recording import REDUCTION, Recording
from trainyard.instance.hook.steps import OpenStep, Raw


class Capturing:
    """Called by the thread that trains, inside of a step."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._taking = Taking(recording)
        self.slots = Slots(recording)
        self._single: dict[int, tuple[int, ...]] = {}  # tuples of one place, which are to be the same each time

    def take_parameters(self, step: OpenStep, plan: Plan, *, scale: torch.Tensor | None = None) -> None:
        """All that is asked of an optimizer's parameters in this step; gradients are still multiplied by `scale`."""
        if not plan.entries:
            return
        batch = plan.batch(self._recording, step)
        step.lacks += batch.lacks
        if batch.places:
            self._taking.take(step, batch.places, [entry.tensor for entry in batch.entries])
        if batch.shown_places:
            self._taking.take(step, batch.shown_places, [entry.tensor for entry in batch.shown], has_histograms=True)
        factor = _inverse(scale) if scale is not None else None
        if factor is not None:
            self._unscale(step, batch, factor)
        for entry, place, wish in batch.saved:
            tensor = entry.tensor
            if tensor is not None:
                is_scaled = entry.kind is Kind.GRADIENT
                self._save(step, entry.name, tensor, place=place, wish=wish, factor=factor if is_scaled else None)

    def take_layer(self, step: OpenStep, layer: Layer, value: Any) -> None:
        """The inputs or outputs of a layer, counted on from its last call in the step."""
        for tensor in values.tensors_in(value):
            number = step.calls.get(layer.key, 0)
            if number >= MOST_CALLS:
                return
            step.calls[layer.key] = number + 1
            numbered = layer.tensor(number)
            self._take(step, numbered.name, tensor, kind=layer.side.kind, module=layer.module, choice=numbered.choice)

    def take_loss(self, step: OpenStep, prefix: str, tensor: torch.Tensor) -> str:
        """A loss under the next name of its module; which that is."""
        number = step.calls.get(f"{prefix}_output", 0)
        name = f"{prefix}_output_{number}"
        if number >= MOST_CALLS:
            return name
        step.calls[f"{prefix}_output"] = number + 1
        choice = self._recording.selection.choice(name)
        if tensor.numel() == 1 and tensor.device.type == "cpu":
            if self._recording.is_taken(choice, step) or choice.is_scalar:
                self._recording.set_scalar(step, name, float(tensor), kind=Kind.LOSS)
        else:
            self._take(step, name, tensor, kind=Kind.LOSS, module="", choice=choice)
        return name

    def take_custom(self, step: OpenStep, name: str, tensor: torch.Tensor) -> None:
        """A tensor that the program gives, which is always saved."""
        choice = self._recording.selection.choice(name)
        wish = self._recording.saved(choice, step) or Saved(is_raw=True)
        place = self._place(step, name, tensor, kind=Kind.CUSTOM)
        self._taking.take(step, self._alone(place), [tensor])
        if self._recording.is_writing:
            self._save(step, name, tensor, place=place, wish=wish)

    def finish(self, step: OpenStep) -> None:
        """Nothing more comes in this step."""
        self.slots.read(step)
        if not self._taking.finish(step):
            step.lacks += len(self._recording.table.current.tensors)

    def _take(
        self, step: OpenStep, name: str, tensor: torch.Tensor, *, kind: Kind, module: str, choice: Choice
    ) -> None:
        wish = self._recording.saved(choice, step)
        is_due = wish is not None or kind is Kind.LOSS
        if not is_due and not self._recording.is_taken(choice, step):
            return
        place = self._place(step, name, tensor, kind=kind, module=module)
        has_histogram = wish is not None and wish.has_histogram
        self._taking.take(step, self._alone(place), [tensor], has_histograms=has_histogram)
        if wish is not None:
            self._save(step, name, tensor, place=place, wish=wish)

    def _place(self, step: OpenStep, name: str, tensor: torch.Tensor, *, kind: Kind, module: str = "") -> int:
        table = self._recording.table
        place = table.place(name)
        if place is None:
            (place,) = table.add([values.describe(name, kind, tensor, module=module)])
        else:
            self._recording.fit(step, place, values.local(tensor).shape)
        return place

    def _alone(self, place: int) -> tuple[int, ...]:
        return self._single.setdefault(place, (place,))

    def _save(
        self,
        step: OpenStep,
        name: str,
        tensor: torch.Tensor,
        *,
        place: int,
        wish: Saved,
        factor: Callable[[], float] | None = None,
    ) -> None:
        step.saved.add(place)
        self._recording.throttle.exempt()
        try:
            for word in wish.extras:
                self._keep(step, REDUCTION.format(word, name), 8, functools.partial(values.reduced, word, tensor))
            if wish.is_raw:
                size = values.size_bytes(tensor)
                self._keep(step, name, size, functools.partial(values.copied, tensor, factor=factor))
        except torch.cuda.OutOfMemoryError:
            self._recording.note(
                "The device has no memory left for copies of the tensors to be saved, which are dropped."
            )

    def _keep(self, step: OpenStep, name: str, size_bytes: int, copy: Callable[[], Raw]) -> None:
        if self._recording.has_room(step, size_bytes):
            step.values[name] = copy()

    @staticmethod
    def _unscale(step: OpenStep, batch: Batch, factor: Callable[[], float]) -> None:
        for entries, places in ((batch.entries, batch.places), (batch.shown, batch.shown_places)):
            for entry, place in zip(entries, places, strict=True):
                if entry.kind is Kind.GRADIENT:
                    step.factors[place] = factor


def _inverse(scale: torch.Tensor) -> Callable[[], float]:
    """1 / scale, asked for once and on the thread that writes, since it may be on a device."""
    kept = scale.detach().clone()
    wait = values.waiting_for(kept)

    @functools.cache
    def inverse() -> float:
        wait()
        return 1.0 / float(kept)

    return inverse
