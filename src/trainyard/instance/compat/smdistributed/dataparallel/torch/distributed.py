"""The older interface of the library, which is that of torch.distributed with a few more names."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    destroy_process_group,
    get_rank,
    get_world_size,
    is_initialized,
    new_group,
    recv,
    reduce,
    send,
)
from trainyard_ranks import place_of, rendezvous

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "destroy_process_group",
    "get_local_rank",
    "get_local_size",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "recv",
    "reduce",
    "send",
]


def is_available() -> bool:
    """Whether a launcher has started this process as one of several."""
    return not place_of(os.environ).is_alone


def init_process_group(*_arguments: Any, **_options: Any) -> None:
    """Meet the other ranks; arguments have no effect. A process that is alone makes a group of one."""
    place = place_of(os.environ)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if place.is_alone:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        return
    where = rendezvous(os.environ, place)
    dist.init_process_group(backend, init_method=where, rank=place.rank, world_size=place.size)


def get_local_rank() -> int:
    """The number of this process among those of its instance."""
    return int(place_of(os.environ).local_rank)


def get_local_size() -> int:
    """How many processes this instance has."""
    return int(place_of(os.environ).local_size)
