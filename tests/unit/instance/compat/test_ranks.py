"""The position of a process among the ranks of its job."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

TORCHRUN = {"RANK": "4", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "6",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}


@pytest.fixture
def ranks(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("trainyard_ranks")


@pytest.mark.parametrize(
    ("environment", "position"),
    [
        (TORCHRUN, (4, 6, 1, 3, 1, 2)),
        (TORCHRUN | OPEN_MPI, (4, 6, 1, 3, 1, 2)),
        (TORCHRUN | {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "3"}, (4, 6, 1, 3, 0, 3)),
        (OPEN_MPI, (5, 6, 1, 2, 2, 3)),
        (HYDRA, (2, 3, 0, 1, 2, 3)),
        ({"RANK": "1", "WORLD_SIZE": "3"}, (1, 3, 0, 1, 1, 3)),
        ({"WORLD_SIZE": "3"}, (0, 1, 0, 1, 0, 1)),
        ({}, (0, 1, 0, 1, 0, 1)),
    ],
)
def test_each_launcher_is_understood(ranks: Any, environment: dict[str, str], position: tuple[int, ...]) -> None:
    assert ranks.read_position(environment) == ranks.RankPosition(*position)


def test_only_a_single_rank_is_alone(ranks: Any) -> None:
    assert ranks.read_position({}).is_alone
    assert not ranks.read_position(TORCHRUN).is_alone


def test_ranks_rendezvous_at_the_master(ranks: Any) -> None:
    environment = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}
    assert ranks.rendezvous_address(environment, ranks.RankPosition(1, 2)) == "tcp://algo-1:7777"


def test_ranks_without_a_master_say_what_is_missing(ranks: Any) -> None:
    with pytest.raises(RuntimeError, match="This is rank 1 of 2, but the environment has no MASTER_PORT"):
        ranks.rendezvous_address({"MASTER_ADDR": "algo-1"}, ranks.RankPosition(1, 2))
