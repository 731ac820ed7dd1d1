"""Ordered collectives and their announcement to ranks that have joined, tested in one process."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist


class Done:
    """A finished collective."""

    def wait(self) -> None: ...

    def is_completed(self) -> bool:
        return True


class Waiting(Done):
    def is_completed(self) -> bool:
        return False


@pytest.fixture
def module(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("horovod.torch.ordered_group")


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


def sums(module: Any, group: Any, *counts: int) -> None:
    for count in counts:
        group.post(module.PostedCollective.of_sum("allreduce", torch.ones(count)), lambda group: Done())


def told(module: Any, store: Any, *, since: int) -> Any:
    """Return another rank's group, which takes part in announced collectives, and their sizes."""
    other = module.OrderedGroup("0", None, store)
    sums(module, other, *[1] * since)
    sizes: list[int] = []
    post = other.post

    def noted(entry: Any, start: Any) -> Any:
        sizes.append(entry.count)
        return post(entry, lambda group: Done())

    other.post = noted
    return other, sizes


def test_past_and_future_collectives_are_announced_to_a_rank_that_has_joined(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    sums(module, group, 10, 11, 12)
    group.start_announcing("join/0", 1)
    sums(module, group, 13)
    other, sizes = told(module, store, since=1)
    assert other.participate("join/0") is None
    assert sizes == [11, 12, 13]
    group.announce_last("join/0", 2)
    assert other.participate("join/0") == 2


def test_nothing_is_announced_unless_a_rank_has_joined(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    sums(module, group, 10)
    group.start_announcing("join/0", 0)
    group.stop_announcing()
    sums(module, group, 11)
    assert store.num_keys() == 1


def test_announcements_of_one_join_do_not_leak_into_the_next(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    group.announce_last("join/0", 1)
    other, sizes = told(module, store, since=0)
    assert other.participate("join/1") is None
    assert sizes == []


def test_a_collective_other_than_a_sum_is_refused_once_a_rank_has_joined(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    group.start_announcing("join/0", 0)
    with pytest.raises(RuntimeError, match="allgather was called after a rank called join"):
        group.post(module.PostedCollective("allgather"), lambda group: Done())
    assert group.count == 0


def test_a_rank_that_has_joined_refuses_what_it_cannot_take_part_in(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    group.post(module.PostedCollective("broadcast"), lambda group: Done())
    group.start_announcing("join/0", 0)
    other, _ = told(module, store, since=0)
    with pytest.raises(RuntimeError, match="broadcast was called after a rank called join"):
        other.participate("join/0")


def test_a_group_waits_while_a_collective_is_under_way(module: Any, store: Any) -> None:
    group = module.OrderedGroup("0", None, store)
    sums(module, group, 1)
    assert not group.is_waiting
    group.post(module.PostedCollective("barrier"), lambda group: Waiting())
    assert group.is_waiting


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_zeros_match_the_tensors_they_replace(module: Any, dtype: torch.dtype) -> None:
    zeros = module.PostedCollective.of_sum("allreduce", torch.ones(3, 2, dtype=dtype)).zeros()
    assert (zeros.dtype, zeros.tolist()) == (dtype, [0] * 6)
