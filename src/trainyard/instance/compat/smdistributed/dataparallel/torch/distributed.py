"""The library's older interface: that of torch.distributed with a few more names."""

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
from trainyard_ranks import read_position

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
    return not read_position(os.environ).is_alone


def init_process_group(*_arguments: Any, **_options: Any) -> None:
    """Connect to the other ranks. Arguments have no effect. A process that is alone creates a group of one."""
    connect(read_position(os.environ))


def get_local_rank() -> int:
    """Return the rank of this process on its instance."""
    return int(read_position(os.environ).local_rank)


def get_local_size() -> int:
    """Return the number of processes on this instance."""
    return int(read_position(os.environ).local_size)
