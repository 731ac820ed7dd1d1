"""Layers that are split over the tensor parallel ranks when the model is wrapped."""

from typing import Any

import torch

from .marks import set_tensor_parallelism

_SUPPORTED = "DistributedLinear, DistributedEmbedding and FusedLayerNorm"


class DistributedLinear(torch.nn.Linear):  # type: ignore[misc]  # mypy does not read torch
    """A linear layer; its sizes are those of the whole layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_tensor_parallelism(self)


class DistributedEmbedding(torch.nn.Embedding):  # type: ignore[misc]
    """An embedding; its sizes are those of the whole layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_tensor_parallelism(self)


FusedLayerNorm = torch.nn.LayerNorm


def __getattr__(name: str) -> Any:
    raise AttributeError(f"Trainyard's smp.nn has no {name}; it has {_SUPPORTED}.")
