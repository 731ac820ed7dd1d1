"""Connects the ranks of a job by torch.distributed, for all libraries built on it."""

import os

import torch
import torch.distributed as dist
from trainyard_ranks import RankPosition, rendezvous_address


def backend() -> str:
    """Return the back end of torch.distributed: gloo for CPU tensors, NCCL for GPU tensors if there is a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def connect(position: RankPosition) -> None:
    """Connect to the other ranks. A process that is alone creates a group of one."""
    if position.is_alone:
        dist.init_process_group(backend(), store=dist.HashStore(), rank=0, world_size=1)
        return
    address = rendezvous_address(os.environ, position)
    dist.init_process_group(backend(), init_method=address, rank=position.rank, world_size=position.size)


def connect_once(position: RankPosition, *, by: str) -> bool:
    """Connect unless the program has already done so; return whether this call connected. `by` names the caller.

    Raises RuntimeError if the program connected as a different rank than its launcher set.
    """
    if not dist.is_initialized():
        connect(position)
        return True
    if dist.get_world_size() != position.size or dist.get_rank() != position.rank:
        raise RuntimeError(
            f"torch.distributed is rank {dist.get_rank()} of {dist.get_world_size()}, but the environment says "
            f"{position.rank} of {position.size}. Initialize it with the environment's values, or leave that to {by}."
        )
    return False
