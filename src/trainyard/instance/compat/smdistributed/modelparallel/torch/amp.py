"""Scales losses so that gradients of half precision do not vanish."""

from typing import Any

import torch
import torch.distributed as dist

from .placement import MODEL
from .world import world


class GradScaler(torch.amp.GradScaler):  # type: ignore[misc]  # mypy does not read torch
    """That of torch, where all ranks of a model skip a step in which the gradients of one are not finite."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        device = world().device
        super().__init__(device.type, *args, **kwargs)
        if self.is_enabled():  # not with the first loss, which only the last stage sees
            self._lazy_init_scale_growth_tracker(device)

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = super()._unscale_grads_(*args, **kwargs)
        device = world().device
        total = found.setdefault(device, torch.zeros(1, device=device))
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=world().groups[MODEL])
        return found
