"""Where a process stands among the ranks of its job, as its launcher tells by the environment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of all, on its instance, and the instance among all. Alone, it is the first of one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1

    @property
    def is_alone(self) -> bool:
        return self.size == 1


class Standing:
    """Tells a program where it stands. What libraries offer for that, each by names of its own, are these methods."""

    def __init__(self, place: Callable[[], Place]) -> None:
        self._place = place  # raises in the library's own words where nothing has connected the ranks

    def rank(self) -> int:
        """The number of this process among all."""
        return self._place().rank

    def size(self) -> int:
        """How many processes there are."""
        return self._place().size

    def local_rank(self) -> int:
        """The number of this process among those of its instance."""
        return self._place().local_rank

    def local_size(self) -> int:
        """How many processes this instance has."""
        return self._place().local_size

    def cross_rank(self) -> int:
        """The number of this instance among all."""
        return self._place().cross_rank

    def cross_size(self) -> int:
        """How many instances there are."""
        return self._place().cross_size


# Rank, size, local rank and local size as torchrun, Open MPI and the Hydra of MPICH and Intel MPI name them.
_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def place_of(environment: Mapping[str, str]) -> Place:
    """What the first launcher says whose names are there; a process without any is alone."""
    for rank, size, local_rank, local_size in _NAMES:
        if rank in environment and size in environment:
            return _place(
                environment,
                rank=int(environment[rank]),
                size=int(environment[size]),
                local_rank=int(environment.get(local_rank, 0)),
                local_size=int(environment.get(local_size, 1)),
            )
    return Place()


def rendezvous(environment: Mapping[str, str], place: Place) -> str:
    """The address at which the ranks meet, as torch.distributed wants it."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise RuntimeError(
            f"This is rank {place.rank} of {place.size}, but the environment has no {' and no '.join(missing)}, so the "
            "ranks cannot find each other. Set both to the host and a free port of rank 0."
        )
    return f"tcp://{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"


def _place(environment: Mapping[str, str], *, rank: int, size: int, local_rank: int, local_size: int) -> Place:
    return Place(
        rank,
        size,
        local_rank,
        local_size,
        cross_rank=int(environment.get("GROUP_RANK", rank // local_size)),
        cross_size=int(environment.get("GROUP_WORLD_SIZE", -(-size // local_size))),
    )
