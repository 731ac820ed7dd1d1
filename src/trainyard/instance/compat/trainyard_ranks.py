"""The position of a process among the ranks of its job, read from its launcher's environment variables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankPosition:
    """A rank among all, among those of its instance, and its instance among all. The default is the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1

    @property
    def is_alone(self) -> bool:
        return self.size == 1


class RankFunctions:
    """The functions by which libraries report the position, each library under its own names.

    `position` raises the library's own error if the ranks are not connected.
    """

    def __init__(self, position: Callable[[], RankPosition]) -> None:
        self._position = position

    def rank(self) -> int:
        """Return the rank of this process."""
        return self._position().rank

    def size(self) -> int:
        """Return the number of processes."""
        return self._position().size

    def local_rank(self) -> int:
        """Return the rank of this process on its instance."""
        return self._position().local_rank

    def local_size(self) -> int:
        """Return the number of processes on this instance."""
        return self._position().local_size

    def cross_rank(self) -> int:
        """Return the rank of this instance."""
        return self._position().cross_rank

    def cross_size(self) -> int:
        """Return the number of instances."""
        return self._position().cross_size


# Rank, size, local rank and local size, of torchrun, Open MPI and Hydra (MPICH and Intel MPI).
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def read_position(environment: Mapping[str, str]) -> RankPosition:
    """Read the variables of the first launcher that set any. A process without them is alone."""
    for rank, size, local_rank, local_size in _RANK_VARIABLES:
        if rank in environment and size in environment:
            return _make_position(
                environment,
                rank=int(environment[rank]),
                size=int(environment[size]),
                local_rank=int(environment.get(local_rank, 0)),
                local_size=int(environment.get(local_size, 1)),
            )
    return RankPosition()


def rendezvous_address(environment: Mapping[str, str], position: RankPosition) -> str:
    """Return the rendezvous address of the ranks, in the form of torch.distributed."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise RuntimeError(
            f"This is rank {position.rank} of {position.size}, but the environment has no {' and no '.join(missing)}, "
            "so the ranks cannot find each other. Set both to rank 0's host and a free port on it."
        )
    return f"tcp://{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"


def _make_position(
    environment: Mapping[str, str], *, rank: int, size: int, local_rank: int, local_size: int
) -> RankPosition:
    return RankPosition(
        rank,
        size,
        local_rank,
        local_size,
        cross_rank=int(environment.get("GROUP_RANK", rank // local_size)),
        cross_size=int(environment.get("GROUP_WORLD_SIZE", -(-size // local_size))),
    )
