"""Scales losses so that half-precision gradients do not underflow."""

from typing import Any

import torch
import torch.distributed as dist

from .placement import MODEL
from .world import world


class GradScaler(torch.amp.GradScaler):  # type: ignore[misc]  # mypy does not read torch
    """torch's scaler, but all ranks of a model skip a step if the gradients of any of them are not finite."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        device = world().device
        super().__init__(device.type, *args, **kwargs)
        # Not with the first loss, as torch does: only the last stage has a loss.
        if self.is_enabled():
            self._lazy_init_scale_growth_tracker(device)

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        infinities: dict[torch.device, torch.Tensor] = super()._unscale_grads_(*args, **kwargs)
        device = world().device
        total = infinities.setdefault(device, torch.zeros(1, device=device))
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=world().groups[MODEL])
        return infinities
