"""The ranks of the job: who this one is, and what connects it with the others."""

import atexit
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from trainyard_connection import backend, connect_once
from trainyard_ranks import Place, Standing, place_of

from .joining import Joining
from .lanes import Lane


@dataclass(slots=True)
class World:
    """What `init` has made. A rank that is alone has no lane."""

    place: Place
    lanes: list[Lane] = field(default_factory=list)
    joining: Joining | None = None
    store: dist.Store | None = None
    owns_group: bool = False

    def add_lane(self, group: dist.ProcessGroup | None = None) -> Lane:
        """A lane of its own; all ranks make the same ones in the same order."""
        made = group if group is not None else dist.new_group(backend=backend())
        self.lanes.append(Lane(str(len(self.lanes)), made, self.store))
        return self.lanes[-1]


_world: World | None = None


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Meet the other ranks. Called again, it has no effect."""
    global _world
    if comm or process_sets:
        raise NotImplementedError("hvd.init takes all ranks; sets of some of them are not served. Call it without any.")
    if _world is not None:
        return
    place = place_of(os.environ)
    _world = World(place) if place.is_alone else _connected(place)
    atexit.register(_leave_at_exit)


def shutdown() -> None:
    """Leave the other ranks; `init` may be called again afterwards."""
    global _world
    if _world is None:
        return
    atexit.unregister(_leave_at_exit)
    _stop_watching(_world)
    if _world.owns_group and dist.is_initialized():
        dist.destroy_process_group()
    _world = None


def is_initialized() -> bool:
    return _world is not None


def world() -> World:
    """The connection that `init` has made."""
    if _world is None:
        raise ValueError("Horovod has not been initialized; call hvd.init() first.")
    return _world


_standing = Standing(lambda: world().place)
rank, size = _standing.rank, _standing.size
local_rank, local_size = _standing.local_rank, _standing.local_size
cross_rank, cross_size = _standing.cross_rank, _standing.cross_size


def is_homogeneous() -> bool:
    """Whether every instance has as many processes as this one."""
    place = world().place
    return bool(place.local_size * place.cross_size == place.size)


def join(device: int = -1) -> int:  # noqa: ARG001
    """Wait until all ranks have run out of data, and take part in their sums with zeros; the rank that was the last.

    `device` has no effect: the zeros are where the tensors of the others are.
    """
    joining = world().joining
    return joining.join() if joining else rank()


def _connected(place: Place) -> World:
    owns_group = connect_once(place, by="hvd.init()")
    default = dist.distributed_c10d._get_default_store()
    store = dist.PrefixStore("horovod", default.clone())
    made = World(place, store=store, owns_group=owns_group)
    made.add_lane(dist.group.WORLD if owns_group else None)
    made.joining = Joining(store, made.lanes, rank=place.rank, size=place.size)
    return made


def _stop_watching(connected: World) -> None:
    if connected.joining is not None:
        connected.joining.close()


def _leave_at_exit() -> None:
    """Shut down for a script that does not: torch may abort a process that ends with its threads at work.

    With a collective under way that would wait for the other ranks, which may be why this one ends.
    """
    if _world is None:
        return
    _stop_watching(_world)
    if not any(lane.is_waiting for lane in _world.lanes):
        shutdown()
