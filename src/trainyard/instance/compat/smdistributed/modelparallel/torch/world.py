"""The ranks of the job: who this one is, and the groups in which it takes part."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from trainyard_connection import connect_once
from trainyard_ranks import Place, Standing, place_of

from .configuration import Configuration, configuration_of, read
from .placement import DATA, MODEL, PIPELINE, REDUCED_DATA, TENSOR, Grid

_KINDS = (PIPELINE, TENSOR, REDUCED_DATA, DATA, MODEL)


@dataclass(frozen=True, slots=True)
class World:
    """What `init` has made."""

    place: Place
    configuration: Configuration
    grid: Grid
    groups: dict[str, dist.ProcessGroup]  # by kind: those that this rank is in
    owns_connection: bool

    def index(self, kind: str) -> int:
        """The number of this rank in its group of a kind."""
        return self.grid.index(kind, self.place.rank)

    def length(self, kind: str) -> int:
        """How many ranks its group of a kind has."""
        return len(self.members(kind))

    def members(self, kind: str) -> list[int]:
        """The ranks of its group of a kind."""
        return self.grid.group(kind, self.place.rank)

    @property
    def device(self) -> torch.device:
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


_world: World | None = None


def init(config: Mapping[str, Any] | None = None) -> None:
    """Meet the other ranks, and lay the model's parts over them as the job's parameters say, or as `config` does."""
    global _world
    if _world is not None:
        return
    configuration = configuration_of(os.environ) if config is None else read(config)
    place = place_of(os.environ)
    grid = Grid(place.size, configuration.pipeline_degree, configuration.tensor_degree, configuration.placement)
    owns_connection = connect_once(place, by="smp.init()")
    groups = {kind: _group(grid, kind) for kind in _KINDS}
    _world = World(place, configuration, grid, groups, owns_connection)


def shutdown() -> None:
    """Leave the other ranks; `init` may be called again afterwards."""
    global _world
    if _world is not None and _world.owns_connection:
        dist.destroy_process_group()
    _world = None


def is_initialized() -> bool:
    return _world is not None


def world() -> World:
    """The connection that `init` has made."""
    if _world is None:
        raise RuntimeError("Model parallelism has not been initialized; call smp.init() first.")
    return _world


_standing = Standing(lambda: world().place)
rank, size = _standing.rank, _standing.size
local_rank, local_size = _standing.local_rank, _standing.local_size
instance_id = _standing.cross_rank


def pp_rank() -> int:
    """Which stage of the pipeline this rank has."""
    return world().index(PIPELINE)


def pp_size() -> int:
    """How many stages there are."""
    return world().length(PIPELINE)


def tp_rank() -> int:
    """Which shard of split layers this rank has."""
    return world().index(TENSOR)


def tp_size() -> int:
    """Into how many shards layers are split."""
    return world().length(TENSOR)


def rdp_rank() -> int:
    """The number of this rank among those that have the same stage and the same shards."""
    return world().index(REDUCED_DATA)


def rdp_size() -> int:
    """How many ranks have the same stage and the same shards."""
    return world().length(REDUCED_DATA)


def dp_rank() -> int:
    """The number of this rank among those that have the same stage."""
    return world().index(DATA)


def dp_size() -> int:
    """How many ranks have the same stage."""
    return world().length(DATA)


def mp_rank() -> int:
    """The number of this rank among those that have one model together."""
    return world().index(MODEL)


def mp_size() -> int:
    """How many ranks have one model together."""
    return world().length(MODEL)


def num_microbatches() -> int:
    """Into how many parts a step splits its batch."""
    return world().configuration.microbatches


def _group(grid: Grid, kind: str) -> dist.ProcessGroup:
    """The one of this rank; all ranks make all groups, in the same order."""
    own, _ = dist.new_subgroups_by_enumeration(grid.groups(kind))
    return own
