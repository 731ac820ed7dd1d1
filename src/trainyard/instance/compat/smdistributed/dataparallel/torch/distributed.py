"""The older interface of the library, which is that of torch.distributed with a few more names."""

import os
from typing import Any

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
from trainyard_connection import connect
from trainyard_ranks import place_of

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
    connect(place_of(os.environ))


def get_local_rank() -> int:
    """The number of this process among those of its instance."""
    return int(place_of(os.environ).local_rank)


def get_local_size() -> int:
    """How many processes this instance has."""
    return int(place_of(os.environ).local_size)
