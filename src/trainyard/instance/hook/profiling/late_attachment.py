"""Waits in a torch program whose job has its profiler disabled: an update of the job may enable it."""

import time
from collections.abc import Callable
from typing import Any

import torch

from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.patches import Closure

# Between two looks, after a step of an optimizer.
_LOOK_S = 1.0


class LateAttachment:
    """Calls `attach` once, after the first step of an optimizer at which `is_enabled` says so.

    It is the only listener of what torch does until then; all but the steps of optimizers is nothing to it.
    """

    def __init__(self, is_enabled: Callable[[], bool], attach: Callable[[], None]) -> None:
        self._is_enabled, self._attach = is_enabled, attach
        self._look_at = 0.0
        patches.attach(self)

    def before_step(self, _optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        return closure

    def after_step(self, _optimizer: torch.optim.Optimizer) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_S
        if self._is_enabled():
            patches.detach(self)
            self._attach()

    def observe_module(self, *_: Any) -> None:
        """Nothing follows."""

    observe_optimizer = observe_loss = before_backward = observe_module

    def skip_step(self) -> None:
        """Nothing follows."""

    after_backward = abandon_backward = skip_step
