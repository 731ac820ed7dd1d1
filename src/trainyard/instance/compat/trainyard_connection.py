"""The ranks of a job, connected by torch.distributed, in the way that all libraries over it share."""

import os

import torch
import torch.distributed as dist
from trainyard_ranks import Place, rendezvous


def backend() -> str:
    """What carries tensors: where there is a GPU, those on it go by another way than the others."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def connect(place: Place) -> None:
    """Meet the other ranks; a process that is alone makes a group of one."""
    if place.is_alone:
        dist.init_process_group(backend(), store=dist.HashStore(), rank=0, world_size=1)
        return
    where = rendezvous(os.environ, place)
    dist.init_process_group(backend(), init_method=where, rank=place.rank, world_size=place.size)


def connect_once(place: Place, *, by: str) -> bool:
    """Whether the program has not connected itself before; `by` is the call that would have done it for it.

    RuntimeError when it has, as another rank than its launcher says.
    """
    if not dist.is_initialized():
        connect(place)
        return True
    if dist.get_world_size() != place.size or dist.get_rank() != place.rank:
        raise RuntimeError(
            f"torch.distributed is rank {dist.get_rank()} of {dist.get_world_size()}, but the environment says "
            f"{place.rank} of {place.size}. Initialize it with the environment's values, or leave that to {by}."
        )
    return False
