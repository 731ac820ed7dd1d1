"""The ranks of the job: the position of this one, and its process groups."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from trainyard_connection import connect_once
from trainyard_ranks import RankFunctions, RankPosition, read_position

from .configuration import Configuration, load_configuration, parse_parameters
from .placement import DATA, MODEL, PIPELINE, REDUCED_DATA, TENSOR, Grid

_KINDS = (PIPELINE, TENSOR, REDUCED_DATA, DATA, MODEL)


@dataclass(frozen=True, slots=True)
class ModelParallelWorld:
    """The state that `init` creates."""

    position: RankPosition
    configuration: Configuration
    grid: Grid
    # The groups of this rank, by kind.
    groups: dict[str, dist.ProcessGroup]
    owns_connection: bool

    def index(self, kind: str) -> int:
        """Return the index of this rank in its group of a kind."""
        return self.grid.index(kind, self.position.rank)

    def length(self, kind: str) -> int:
        """Return the size of its group of a kind."""
        return len(self.members(kind))

    def members(self, kind: str) -> list[int]:
        """Return the ranks of its group of a kind."""
        return self.grid.group(kind, self.position.rank)

    @property
    def device(self) -> torch.device:
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


_world: ModelParallelWorld | None = None


def init(config: Mapping[str, Any] | None = None) -> None:
    """Connect to the other ranks, and assign parts of the model to them as the job's parameters or `config` say."""
    global _world
    if _world is not None:
        return
    configuration = load_configuration(os.environ) if config is None else parse_parameters(config)
    position = read_position(os.environ)
    grid = Grid(position.size, configuration.pipeline_degree, configuration.tensor_degree, configuration.placement)
    owns_connection = connect_once(position, by="smp.init()")
    groups = {kind: _group(grid, kind) for kind in _KINDS}
    _world = ModelParallelWorld(position, configuration, grid, groups, owns_connection)


def shutdown() -> None:
    """Disconnect from the other ranks. `init` can be called again afterwards."""
    global _world
    if _world is not None and _world.owns_connection:
        dist.destroy_process_group()
    _world = None


def is_initialized() -> bool:
    return _world is not None


def world() -> ModelParallelWorld:
    """Return the state that `init` created."""
    if _world is None:
        raise RuntimeError("Model parallelism has not been initialized; call smp.init() first.")
    return _world


_ranks = RankFunctions(lambda: world().position)
rank, size = _ranks.rank, _ranks.size
local_rank, local_size = _ranks.local_rank, _ranks.local_size
instance_id = _ranks.cross_rank


def pp_rank() -> int:
    """Return the pipeline stage of this rank."""
    return world().index(PIPELINE)


def pp_size() -> int:
    """Return the number of stages."""
    return world().length(PIPELINE)


def tp_rank() -> int:
    """Return this rank's shard of split layers."""
    return world().index(TENSOR)


def tp_size() -> int:
    """Return the number of shards of split layers."""
    return world().length(TENSOR)


def rdp_rank() -> int:
    """Return the index of this rank among those with the same stage and the same shards."""
    return world().index(REDUCED_DATA)


def rdp_size() -> int:
    """Return the number of ranks with the same stage and the same shards."""
    return world().length(REDUCED_DATA)


def dp_rank() -> int:
    """Return the index of this rank among those with the same stage."""
    return world().index(DATA)


def dp_size() -> int:
    """Return the number of ranks with the same stage."""
    return world().length(DATA)


def mp_rank() -> int:
    """Return the index of this rank among those that share one model."""
    return world().index(MODEL)


def mp_size() -> int:
    """Return the number of ranks that share one model."""
    return world().length(MODEL)


def num_microbatches() -> int:
    """Return the number of parts into which a step splits its batch."""
    return world().configuration.microbatches


def _group(grid: Grid, kind: str) -> dist.ProcessGroup:
    """Return this rank's group. All ranks create all groups, in the same order."""
    own, _ = dist.new_subgroups_by_enumeration(grid.groups(kind))
    return own
