"""Layers that are split over the tensor parallel ranks, by torch.distributed.tensor."""

import warnings

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from .marks import is_split
from .placement import TENSOR
from .world import World

_KINDS = (torch.nn.Linear, torch.nn.Embedding)


def split_layers(model: torch.nn.Module, world: World) -> list[torch.nn.Module]:
    """Split those layers of a model that are marked and can be, in place; they take and give what they did before.

    Ranks of a group have other examples each, whose activations they exchange; with a prescaled batch, the same ones.
    """
    if world.length(TENSOR) == 1:
        return []
    mesh = DeviceMesh.from_group(world.groups[TENSOR], world.device.type)
    layout = Replicate() if world.configuration.prescaled_batch else Shard(0)
    found = [(name, module) for name, module in model.named_modules() if _can_be_split(name, module, world)]
    for _, module in found:
        parallelize_module(module, mesh, ColwiseParallel(input_layouts=layout, output_layouts=layout))
    return [module for _, module in found]


def _can_be_split(name: str, module: torch.nn.Module, world: World) -> bool:
    if not is_split(module) or not isinstance(module, _KINDS) or any(each.is_meta for each in module.parameters()):
        return False
    width = module.out_features if isinstance(module, torch.nn.Linear) else module.embedding_dim
    is_even: bool = width % world.length(TENSOR) == 0
    if not is_even:
        count = world.length(TENSOR)
        warnings.warn(f'"{name}" is not split: its {width} features are no multiple of {count} ranks.', stacklevel=4)
    return is_even


def is_shard(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DTensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank has; a change of it changes the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor; every rank of the group calls this for the same ones."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: torch.Tensor, given: torch.Tensor, *, is_partial: bool) -> torch.Tensor:
    """What is given, a part or the whole, split as the tensor is."""
    if not isinstance(tensor, DTensor) or given.dim() == 0:
        return given
    if not is_partial:
        return distribute_tensor(given, tensor.device_mesh, tensor.placements, src_data_rank=None)
    return DTensor.from_local(given, tensor.device_mesh, tensor.placements)
