"""Which ranks hold which part of the model; the tables are from SageMaker's documentation."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def placement(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.placement")


def test_neighbours_hold_one_model_in_a_cluster(placement: Any) -> None:
    grid = placement.Grid(8, 2, 1, "DPT")
    assert grid.groups("mp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert grid.groups("dp") == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_ranks_far_apart_hold_one_model_when_it_is_spread(placement: Any) -> None:
    grid = placement.Grid(8, 2, 1, "TPD")
    assert grid.groups("mp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert grid.groups("dp") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.index("dp", 6) == 2


def test_tensor_parallel_ranks_are_data_parallel_ones_and_of_one_model(placement: Any) -> None:
    grid = placement.Grid(8, 2, 2, "DPT")
    places = [tuple(grid.index(kind, rank) for kind in ("rdp", "pp", "tp")) for rank in range(8)]
    assert places == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    assert grid.groups("mp") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert grid.groups("dp") == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert grid.group("rdp", 7) == [3, 7]


@pytest.mark.parametrize("order", ["DPT", "DTP", "PDT", "PTD", "TDP", "TPD"])
def test_every_rank_is_in_one_group_of_each_kind(placement: Any, order: str) -> None:
    grid = placement.Grid(12, 3, 2, order)
    for kind, length in {"pp": 3, "tp": 2, "rdp": 2, "dp": 4, "mp": 6}.items():
        groups = grid.groups(kind)
        assert sorted(rank for group in groups for rank in group) == list(range(12))
        assert {len(group) for group in groups} == {length}


def test_ranks_that_cannot_be_divided_into_parts_are_refused(placement: Any) -> None:
    with pytest.raises(
        ValueError, match=r"6 ranks cannot be divided into 2 partitions of 2 tensor .* start a multiple of 4"
    ):
        placement.Grid(6, 2, 2)
