"""Layers that are made to be split over the tensor parallel ranks; before the model is wrapped they are whole."""

from typing import Any

import torch

from .marks import set_tensor_parallelism

_SERVED = "DistributedLinear, DistributedEmbedding and FusedLayerNorm"


class DistributedLinear(torch.nn.Linear):  # type: ignore[misc]  # mypy does not read torch
    """A linear layer of so many features over all ranks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_tensor_parallelism(self)


class DistributedEmbedding(torch.nn.Embedding):  # type: ignore[misc]
    """An embedding of so many features over all ranks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_tensor_parallelism(self)


FusedLayerNorm = torch.nn.LayerNorm


def __getattr__(name: str) -> Any:
    raise AttributeError(f"smp.nn has no {name} in Trainyard's stand-in; it has {_SERVED}.")
