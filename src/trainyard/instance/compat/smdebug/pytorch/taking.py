"""Takes many tensors into a step at once, which is much cheaper than one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.collecting import Choice
from trainyard.instance.hook.pytorch.capturing import Capturing
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.steps import OpenStep


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter, or its gradient, with what is asked of it."""

    name: str
    kind: Kind
    module: str
    choice: Choice
    parameter: torch.Tensor


class ManyCapturing(Capturing):
    """Adds to what is captured for all hooks that which a hook of smdebug's kind needs."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}  # which are to be the same object in every step

    def take_named(self, step: OpenStep, tensors: Sequence[tuple[Named, torch.Tensor]]) -> None:
        plain: dict[int, torch.Tensor] = {}
        shown: dict[int, torch.Tensor] = {}
        for named, tensor in tensors:
            wish = self._recording.saved(named.choice, step)
            if wish is None and not self._recording.is_taken(named.choice, step):
                continue
            place = self._place(step, named.name, tensor, kind=named.kind, module=named.module)
            (shown if wish is not None and wish.has_histogram else plain)[place] = tensor
            if wish is not None:
                self._save(step, named.name, tensor, place=place, wish=wish)
        for group, has_histograms in ((plain, False), (shown, True)):
            places = tuple(group)
            if places:
                kept = self._tuples.setdefault(places, places)
                self._taking.take(step, kept, list(group.values()), has_histograms=has_histograms)

    def take_result(self, step: OpenStep, prefix: str, tensor: torch.Tensor) -> str:
        """A result under the next name of its maker; which that is. A loss of every sample is saved whole."""
        key = f"{prefix}_output"
        number = step.calls.get(key, 0)
        step.calls[key] = number + 1
        name = f"{key}_{number}"
        choice = self._recording.selection.choice(name)
        is_loss = choice.is_scalar and tensor.numel() == 1
        kind = Kind.LOSS if is_loss else Kind.OUTPUT
        self._take(step, name, tensor, kind=kind, module="", choice=replace(choice, is_scalar=is_loss))
        return name
