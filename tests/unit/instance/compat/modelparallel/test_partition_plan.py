"""Cutting a sequence of layers into balanced stages."""

from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def balance(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.partition_plan")


@pytest.mark.parametrize(
    ("sizes", "parts", "numbers"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([4, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([0, 5, 0, 5, 0], 2, [0, 0, 0, 1, 1]),
        ([9, 1, 1], 3, [0, 1, 2]),
        ([0, 0, 0], 3, [0, 1, 2]),
        ([1, 2, 3], 1, [0, 0, 0]),
    ],
)
def test_parts_are_about_the_same(balance: Any, sizes: list[int], parts: int, numbers: list[int]) -> None:
    assert balance.balanced_cut(sizes, parts) == numbers


def test_no_other_cut_has_a_smaller_largest_part(balance: Any) -> None:
    chance = Random(4)
    for _ in range(200):
        sizes = [chance.randrange(20) for _ in range(chance.randrange(1, 9))]
        parts = chance.randrange(1, len(sizes) + 1)
        numbers = balance.balanced_cut(sizes, parts)
        assert sorted(set(numbers)) == list(range(parts))
        assert numbers == sorted(numbers)
        cuts = ([0, *each, len(sizes)] for each in combinations(range(1, len(sizes)), parts - 1))
        best = min(max(sum(sizes[a:b]) for a, b in pairwise(cut)) for cut in cuts)
        assert balance.largest_part(sizes, numbers) == best


def test_fewer_layers_than_parts_cannot_be_cut(balance: Any) -> None:
    with pytest.raises(ValueError, match="2 layers cannot be cut into 3 parts"):
        balance.balanced_cut([1, 1], 3)
