"""Collectives in their order, and what a rank that has joined is told of them, without any other rank."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist


class Done:
    """A collective that is over."""

    def wait(self) -> None: ...

    def is_completed(self) -> bool:
        return True


class Waiting(Done):
    def is_completed(self) -> bool:
        return False


@pytest.fixture
def lanes(stand_in: Callable[[str], ModuleType]) -> Any:
    return stand_in("horovod.torch.lanes")


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


def sums(lanes: Any, lane: Any, *counts: int) -> None:
    for count in counts:
        lane.post(lanes.Entry.of_sum("allreduce", torch.ones(count)), lambda group: Done())


def told(lanes: Any, store: Any, *, since: int) -> Any:
    """A lane of another rank, which takes part in what it is told; and the sizes of it."""
    other = lanes.Lane("0", None, store)
    sums(lanes, other, *[1] * since)
    sizes: list[int] = []
    post = other.post

    def noted(entry: Any, start: Any) -> Any:
        sizes.append(entry.count)
        return post(entry, lambda group: Done())

    other.post = noted
    return other, sizes


def test_a_rank_that_has_joined_is_told_of_what_was_posted_since_and_of_what_follows(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    sums(lanes, lane, 10, 11, 12)
    lane.begin_telling("join/0", 1)
    sums(lanes, lane, 13)
    other, sizes = told(lanes, store, since=1)
    assert other.take_part("join/0") is None
    assert sizes == [11, 12, 13]
    lane.end("join/0", 2)
    assert other.take_part("join/0") == 2


def test_nothing_is_told_unless_a_rank_has_joined(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    sums(lanes, lane, 10)
    lane.begin_telling("join/0", 0)
    lane.end_telling()
    sums(lanes, lane, 11)
    assert store.num_keys() == 1


def test_what_was_told_in_one_join_is_not_taken_for_the_next(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    lane.end("join/0", 1)
    other, sizes = told(lanes, store, since=0)
    assert other.take_part("join/1") is None
    assert sizes == []


def test_a_collective_that_is_no_sum_is_refused_once_a_rank_has_joined(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    lane.begin_telling("join/0", 0)
    with pytest.raises(RuntimeError, match="allgather was called while a rank has called join"):
        lane.post(lanes.Entry("allgather"), lambda group: Done())
    assert lane.count == 0


def test_a_rank_that_has_joined_refuses_what_it_cannot_take_part_in(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    lane.post(lanes.Entry("broadcast"), lambda group: Done())
    lane.begin_telling("join/0", 0)
    other, _ = told(lanes, store, since=0)
    with pytest.raises(RuntimeError, match="broadcast was called while a rank has called join"):
        other.take_part("join/0")


def test_a_lane_waits_while_a_collective_is_under_way(lanes: Any, store: Any) -> None:
    lane = lanes.Lane("0", None, store)
    sums(lanes, lane, 1)
    assert not lane.is_waiting
    lane.post(lanes.Entry("barrier"), lambda group: Waiting())
    assert lane.is_waiting


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_zeros_are_like_what_they_stand_for(lanes: Any, dtype: torch.dtype) -> None:
    zeros = lanes.Entry.of_sum("allreduce", torch.ones(3, 2, dtype=dtype)).zeros()
    assert (zeros.dtype, zeros.tolist()) == (dtype, [0] * 6)
