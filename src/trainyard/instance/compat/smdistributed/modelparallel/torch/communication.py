"""Objects that ranks send to each other, and where they wait for each other."""

from enum import Enum
from typing import Any

import torch
import torch.distributed as dist

from .placement import DATA, MODEL, PIPELINE, REDUCED_DATA, TENSOR
from .world import world

_WORLD = "world"
_CPU = torch.device("cpu")


class CommGroup(Enum):
    """Who takes part."""

    WORLD = _WORLD
    MP_GROUP = MODEL
    DP_GROUP = DATA
    PP_GROUP = PIPELINE
    TP_GROUP = TENSOR
    RDP_GROUP = REDUCED_DATA


class RankType(Enum):
    """Among whom a rank is counted."""

    WORLD_RANK = _WORLD
    MP_RANK = MODEL
    DP_RANK = DATA
    PP_RANK = PIPELINE
    TP_RANK = TENSOR
    RDP_RANK = REDUCED_DATA


def broadcast(obj: Any, group: CommGroup = CommGroup.WORLD) -> None:
    """Send an object to all others of the group, which call `recv_from`."""
    for rank in _members(group.value):
        if rank != world().place.rank:
            dist.send_object_list([obj], dst=rank, device=_CPU)


def send(obj: Any, dest_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> None:
    """Send an object to one rank, which calls `recv_from`."""
    dist.send_object_list([obj], dst=_members(rank_type.value)[dest_rank], device=_CPU)


def recv_from(src_rank: int, rank_type: RankType = RankType.WORLD_RANK) -> Any:
    """The object that a rank has sent to this one, or to a group of it."""
    found = [None]
    dist.recv_object_list(found, src=_members(rank_type.value)[src_rank], device=_CPU)
    return found[0]


def allgather(obj: Any, group: CommGroup = CommGroup.WORLD) -> list[Any]:
    """The objects of all ranks of the group, in their order."""
    found = [None] * len(_members(group.value))
    dist.all_gather_object(found, obj, group=process_group(group))
    return found


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Wait until all ranks of the group are here."""
    dist.barrier(group=process_group(group))


def mp_barrier() -> None:
    """Wait for those that have one model together."""
    barrier(CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """Wait for those that have the same stage."""
    barrier(CommGroup.DP_GROUP)


def pp_barrier() -> None:
    """Wait for those that make one pipeline."""
    barrier(CommGroup.PP_GROUP)


def tp_barrier() -> None:
    """Wait for those that have shards of the same layers."""
    barrier(CommGroup.TP_GROUP)


def rdp_barrier() -> None:
    """Wait for those that have the same stage and the same shards."""
    barrier(CommGroup.RDP_GROUP)


def get_world_process_group() -> dist.ProcessGroup:
    """All ranks, for functions of torch.distributed."""
    return process_group(CommGroup.WORLD)


def get_mp_process_group() -> dist.ProcessGroup:
    """Those that have one model together."""
    return process_group(CommGroup.MP_GROUP)


def get_dp_process_group() -> dist.ProcessGroup:
    """Those that have the same stage."""
    return process_group(CommGroup.DP_GROUP)


def get_pp_process_group() -> dist.ProcessGroup:
    """Those that make one pipeline."""
    return process_group(CommGroup.PP_GROUP)


def get_tp_process_group() -> dist.ProcessGroup:
    """Those that have shards of the same layers."""
    return process_group(CommGroup.TP_GROUP)


def get_rdp_process_group() -> dist.ProcessGroup:
    """Those that have the same stage and the same shards."""
    return process_group(CommGroup.RDP_GROUP)


def get_mp_group() -> list[int]:
    """The ranks that have one model together."""
    return world().members(MODEL)


def get_dp_group() -> list[int]:
    """The ranks that have the same stage."""
    return world().members(DATA)


def process_group(group: CommGroup) -> dist.ProcessGroup:
    """A group as torch.distributed has it."""
    found = world()
    return dist.group.WORLD if group is CommGroup.WORLD else found.groups[group.value]


def _members(kind: str) -> list[int]:
    found = world()
    return list(range(found.place.size)) if kind == _WORLD else found.members(kind)
