"""The rank of this process among the workers of a training."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

# Of torchrun, Open MPI and Hydra (MPICH, Intel MPI); the last pair is set for an instance whose program has no
# launcher.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("TRAINYARD_WORKER", "TRAINYARD_WORKERS"),
)


@dataclass(frozen=True, slots=True)
class WorkerRank:
    """A rank and the number of ranks."""

    rank: int = 0
    size: int = 1

    @property
    def name(self) -> str:
        return f"worker_{self.rank}"


def current_rank(environment: Mapping[str, str]) -> WorkerRank:
    """Return the rank from torch.distributed if it is initialized, else from the launcher's variables, else 0 of 1."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return WorkerRank(distributed.get_rank(), distributed.get_world_size())
    for rank, size in _RANK_VARIABLES:
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit():
            return WorkerRank(int(environment[rank]), int(environment[size]))
    return WorkerRank()
