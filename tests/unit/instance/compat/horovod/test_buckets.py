"""Gradients in buckets."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def buckets(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("horovod.torch.buckets")


def parameters(*sizes: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=dtype, requires_grad=True) for size in sizes]


def sizes_of(made: list[Any]) -> list[list[int]]:
    return [[p.numel() for p in bucket.parameters] for bucket in made]


def test_the_last_parameters_come_first(buckets: Any) -> None:
    assert sizes_of(buckets.make_buckets(parameters(1, 2, 3))) == [[3, 2, 1]]


def test_a_bucket_is_full_once_it_reaches_the_limit(buckets: Any) -> None:
    assert sizes_of(buckets.make_buckets(parameters(1, 9, 3, 2, 1), limit=24)) == [[1, 2, 3], [9], [1]]


def test_a_large_gradient_does_not_wait_for_those_that_come_after_it(buckets: Any) -> None:
    assert sizes_of(buckets.make_buckets(parameters(1, 1, 9, 1), limit=24)) == [[1, 9], [1, 1]]


def test_a_limit_of_nothing_sends_each_gradient_by_itself(buckets: Any) -> None:
    assert sizes_of(buckets.make_buckets(parameters(1, 1), limit=0)) == [[1], [1]]


def test_the_first_bucket_is_small_so_that_sending_begins_early(buckets: Any) -> None:
    half = buckets.FIRST_BYTES // 4 // 2
    assert sizes_of(buckets.make_buckets(parameters(*[half] * 6))) == [[half] * 2, [half] * 4]


def test_types_do_not_mix(buckets: Any) -> None:
    mixed = [*parameters(1, 2), *parameters(3, dtype=torch.float64), *parameters(4)]
    assert sizes_of(buckets.make_buckets(mixed)) == [[4, 2, 1], [3]]


def test_no_parameters_make_no_bucket(buckets: Any) -> None:
    assert buckets.make_buckets([]) == []
