"""The ranks of the job: the position of this one, its connection to the others, and the back ends that it can use."""

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from trainyard_connection import backend, connect_once
from trainyard_ranks import RankFunctions, RankPosition, read_position

from .join_coordinator import JoinCoordinator
from .ordered_group import OrderedGroup


@dataclass(slots=True)
class HorovodWorld:
    """The state that `init` creates. A rank that is alone has no group."""

    position: RankPosition
    groups: list[OrderedGroup] = field(default_factory=list)
    join_coordinator: JoinCoordinator | None = None
    store: dist.Store | None = None
    owns_group: bool = False

    def add_group(self, group: dist.ProcessGroup | None = None) -> OrderedGroup:
        """Add a group. All ranks must add the same groups in the same order."""
        process_group = group if group is not None else dist.new_group(backend=backend())
        self.groups.append(OrderedGroup(str(len(self.groups)), process_group, self.store))
        return self.groups[-1]


_world: HorovodWorld | None = None


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Connect to the other ranks. A second call has no effect."""
    global _world
    if comm or process_sets:
        raise NotImplementedError(
            "hvd.init includes all ranks and does not support subsets. Call it without arguments."
        )
    if _world is not None:
        return
    position = read_position(os.environ)
    _world = HorovodWorld(position) if position.is_alone else _connect(position)
    atexit.register(_shut_down_at_exit)


def shutdown() -> None:
    """Disconnect from the other ranks. `init` can be called again afterwards."""
    global _world
    if _world is None:
        return
    atexit.unregister(_shut_down_at_exit)
    _stop_watching(_world)
    if _world.owns_group and dist.is_initialized():
        dist.destroy_process_group()
    _world = None


def is_initialized() -> bool:
    return _world is not None


def world() -> HorovodWorld:
    """Return the state that `init` created."""
    if _world is None:
        raise ValueError("Horovod has not been initialized; call hvd.init() first.")
    return _world


_ranks = RankFunctions(lambda: world().position)
rank, size = _ranks.rank, _ranks.size
local_rank, local_size = _ranks.local_rank, _ranks.local_size
cross_rank, cross_size = _ranks.cross_rank, _ranks.cross_size


def is_homogeneous() -> bool:
    """Whether every instance has as many processes as this one."""
    position = world().position
    return bool(position.local_size * position.cross_size == position.size)


def join(device: int = -1) -> int:  # noqa: ARG001
    """Wait until all ranks have run out of data, adding zeros to their sums meanwhile. Returns the last rank to join.

    `device` has no effect: the zeros are on the same kind of device as the other ranks' tensors.
    """
    coordinator = world().join_coordinator
    return coordinator.join() if coordinator else rank()


class _AllRanks:
    """Every rank of the job."""

    process_set_id = 0

    def size(self) -> int:
        return int(size())

    def rank(self) -> int:
        return int(rank())

    def included(self) -> bool:
        return True


class ProcessSet(_AllRanks):
    """Raises: sets of some ranks are not supported."""

    def __init__(self, *_ranks: Any) -> None:
        raise NotImplementedError(
            "hvd.ProcessSet is not supported: collectives include all ranks. For a subset, use "
            "torch.distributed.new_group after hvd.init()."
        )


global_process_set: Any = _AllRanks()


def require_global(process_set: Any) -> None:
    if process_set is not global_process_set:
        raise NotImplementedError("process_set must be hvd.global_process_set: collectives include all ranks.")


def mpi_threads_supported() -> bool:
    return False


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return True


def gloo_built() -> bool:
    return bool(dist.is_gloo_available())


def nccl_built() -> int:
    """Return the version as one number, such as 22703, or zero without NCCL."""
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return int(major * 10000 + minor * 100 + patch)


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return torch.version.cuda is not None


def rocm_built() -> bool:
    return torch.version.hip is not None


def _connect(position: RankPosition) -> HorovodWorld:
    owns_group = connect_once(position, by="hvd.init()")
    default = dist.distributed_c10d._get_default_store()
    store = dist.PrefixStore("horovod", default.clone())
    connected = HorovodWorld(position, store=store, owns_group=owns_group)
    connected.add_group(dist.group.WORLD if owns_group else None)
    connected.join_coordinator = JoinCoordinator(store, connected.groups, rank=position.rank, size=position.size)
    return connected


def _stop_watching(connected: HorovodWorld) -> None:
    if connected.join_coordinator is not None:
        connected.join_coordinator.close()


def _shut_down_at_exit() -> None:
    """Shut down for a script that does not: torch may abort a process that exits while its threads run.

    Not while a collective is in progress: that would wait for the other ranks, and their failure may be why this one
    exits.
    """
    if _world is None:
        return
    _stop_watching(_world)
    if not any(group.is_waiting for group in _world.groups):
        shutdown()
