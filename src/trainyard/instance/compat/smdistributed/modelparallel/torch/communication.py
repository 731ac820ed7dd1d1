"""Sends objects between ranks, and synchronizes ranks."""

from enum import Enum
from typing import Any

import torch
import torch.distributed as dist

from .placement import DATA, MODEL, PIPELINE, REDUCED_DATA, TENSOR
from .world import world

_WORLD = "world"
_CPU = torch.device("cpu")


class CommGroup(Enum):
    """The ranks that take part."""

    WORLD = _WORLD
    MP_GROUP = MODEL
    DP_GROUP = DATA
    PP_GROUP = PIPELINE
    TP_GROUP = TENSOR
    RDP_GROUP = REDUCED_DATA


class RankType(Enum):
    """The group in which a rank is numbered."""

    WORLD_RANK = _WORLD
    MP_RANK = MODEL
    DP_RANK = DATA
    PP_RANK = PIPELINE
    TP_RANK = TENSOR
    RDP_RANK = REDUCED_DATA


def broadcast(obj: Any, group: CommGroup = CommGroup.WORLD) -> None:
    """Send an object to all other ranks of the group, which must call `recv_from`."""
    for rank in _members(group.value):
        if rank != world().position.rank:
            dist.send_object_list([obj], dst=rank, device=_CPU)


def send(obj: Any, dest_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> None:
    """Send an object to one rank, which must call `recv_from`."""
    dist.send_object_list([obj], dst=_members(rank_type.value)[dest_rank], device=_CPU)


def recv_from(src_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> Any:
    """Receive an object that a rank has sent to this one or to its group."""
    received = [None]
    dist.recv_object_list(received, src=_members(rank_type.value)[src_rank], device=_CPU)
    return received[0]


def allgather(obj: Any, group: CommGroup = CommGroup.WORLD) -> list[Any]:
    """Gather the objects of all ranks of the group, in rank order."""
    gathered = [None] * len(_members(group.value))
    dist.all_gather_object(gathered, obj, group=process_group(group))
    return gathered


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Wait until all ranks of the group have called this."""
    dist.barrier(group=process_group(group))


def mp_barrier() -> None:
    """Wait for the ranks that share one model."""
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """Wait for the ranks with the same stage."""
    barrier(CommGroup.DP_GROUP)


def pp_barrier() -> None:
    """Wait for the ranks of one pipeline."""
    barrier(CommGroup.PP_GROUP)


def tp_barrier() -> None:
    """Wait for the ranks with shards of the same layers."""
    barrier(CommGroup.TP_GROUP)


def rdp_barrier() -> None:
    """Wait for the ranks with the same stage and the same shards."""
    barrier(CommGroup.RDP_GROUP)


def get_world_process_group() -> dist.ProcessGroup:
    """Return the process group of all ranks, for functions of torch.distributed."""
    return process_group(CommGroup.WORLD)


def get_mp_process_group() -> dist.ProcessGroup:
    """Return the process group of the ranks that share one model."""
    return process_group(CommGroup.MP_GROUP)


def get_dp_process_group() -> dist.ProcessGroup:
    """Return the process group of the ranks with the same stage."""
    return process_group(CommGroup.DP_GROUP)


def get_pp_process_group() -> dist.ProcessGroup:
    """Return the process group of one pipeline."""
    return process_group(CommGroup.PP_GROUP)


def get_tp_process_group() -> dist.ProcessGroup:
    """Return the process group of the ranks with shards of the same layers."""
    return process_group(CommGroup.TP_GROUP)


def get_rdp_process_group() -> dist.ProcessGroup:
    """Return the process group of the ranks with the same stage and the same shards."""
    return process_group(CommGroup.RDP_GROUP)


def get_mp_group() -> list[int]:
    """Return the ranks that share one model."""
    return world().members(MODEL)


def get_dp_group() -> list[int]:
    """Return the ranks with the same stage."""
    return world().members(DATA)


def process_group(group: CommGroup) -> dist.ProcessGroup:
    """Return the process group of torch.distributed for a group."""
    return dist.group.WORLD if group is CommGroup.WORLD else world().groups[group.value]


def _members(kind: str) -> list[int]:
    current = world()
    return list(range(current.position.size)) if kind == _WORLD else current.members(kind)
