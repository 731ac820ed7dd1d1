"""Splits layers over the tensor parallel ranks, by torch.distributed.tensor."""

import warnings

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from .marks import is_split
from .placement import TENSOR
from .world import ModelParallelWorld

_KINDS = (torch.nn.Linear, torch.nn.Embedding)


def split_layers(model: torch.nn.Module, world: ModelParallelWorld) -> list[torch.nn.Module]:
    """Split the marked layers of a model in place, if possible. Their inputs and outputs stay the same.

    Each rank of a group has its own examples, whose activations they exchange; with a prescaled batch, all have the
    same ones.
    """
    if world.length(TENSOR) == 1:
        return []
    mesh = DeviceMesh.from_group(world.groups[TENSOR], world.device.type)
    layout = Replicate() if world.configuration.prescaled_batch else Shard(0)
    layers = [(name, module) for name, module in model.named_modules() if _can_be_split(name, module, world)]
    for _, module in layers:
        parallelize_module(module, mesh, ColwiseParallel(input_layouts=layout, output_layouts=layout))
    return [module for _, module in layers]


def _can_be_split(name: str, module: torch.nn.Module, world: ModelParallelWorld) -> bool:
    if not is_split(module) or not isinstance(module, _KINDS) or any(each.is_meta for each in module.parameters()):
        return False
    width = module.out_features if isinstance(module, torch.nn.Linear) else module.embedding_dim
    is_even: bool = width % world.length(TENSOR) == 0
    if not is_even:
        count = world.length(TENSOR)
        warnings.warn(f'"{name}" is not split: its {width} features are not a multiple of {count} ranks.', stacklevel=4)
    return is_even


def is_shard(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DTensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor. Changing it changes the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return all of a tensor. Every rank of the group calls this for the same tensors."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: torch.Tensor, given: torch.Tensor, *, is_partial: bool) -> torch.Tensor:
    """Return the given part or whole, split like the tensor."""
    if not isinstance(tensor, DTensor) or given.dim() == 0:
        return given
    if not is_partial:
        return distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=None)
    return DTensor.from_local(given, tensor.device_mesh, tensor.placements)
