"""Which of the processes of a training this is."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

# Rank and size as torchrun, Open MPI and the Hydra of MPICH and Intel MPI name them, and as a job tells its instances.
_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("TRAINYARD_WORKER", "TRAINYARD_WORKERS"),
    ("TRAINYARD_WORKER", "TRAINYARD_WORKERS"),  # of an instance whose program is no rank
)


@dataclass(frozen=True, slots=True)
class Worker:
    rank: int = 0
    size: int = 1

    @property
    def name(self) -> str:
        return f"worker_{self.rank}"


def this_worker(environment: Mapping[str, str]) -> Worker:
    """What torch.distributed says once it is set up, else what the launcher set; a process with neither is alone."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Worker(distributed.get_rank(), distributed.get_world_size())
    for rank, size in _NAMES:
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit():
            return Worker(int(environment[rank]), int(environment[size]))
    return Worker()
