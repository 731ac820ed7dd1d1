"""Splitting the arguments of a step into microbatches, and merging their results."""

from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

Pair = namedtuple("Pair", "left right")


@pytest.fixture
def splitting(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.microbatches").BatchSplit


@pytest.fixture
def output(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.microbatches")


def step(model: Any, data: Any, *, other: Any = None) -> None:
    """A step with typical arguments."""


def test_tensors_are_split_wherever_they_are_and_the_rest_is_the_same(splitting: Any) -> None:
    data = {"ids": torch.arange(4), "more": [torch.arange(8).view(4, 2), "word"], "pair": Pair(torch.arange(4), 1)}
    first, second = splitting().split(step, ("the model", data), {"other": torch.tensor(5)}, 2)
    assert (first.args[0], second.args[0]) == ("the model", "the model")
    assert second.args[1]["ids"].tolist() == [2, 3]
    assert second.args[1]["more"][0].tolist() == [[4, 5], [6, 7]]
    assert second.args[1]["more"][1] == "word"
    assert second.args[1]["pair"].left.tolist() == [2, 3]
    assert first.kwargs["other"].item() == second.kwargs["other"].item() == 5


def test_arguments_can_stay_whole_or_be_split_along_another_axis(splitting: Any) -> None:
    how = splitting(("other",), {"data": 1})
    parts = how.split(step, (None, torch.arange(6).view(1, 6)), {"other": torch.arange(5)}, 3)
    assert [part.args[1].tolist() for part in parts] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert all(part.kwargs["other"].tolist() == [0, 1, 2, 3, 4] for part in parts)


def test_an_object_splits_itself_where_it_can(splitting: Any) -> None:
    class Sliced:
        def smp_slice(self, num_mb: int, mb: int, axis: int) -> tuple[int, int, int]:
            return num_mb, mb, axis

    parts = splitting().split(step, (None, Sliced()), {}, 2)
    assert [part.args[1] for part in parts] == [(2, 0, 0), (2, 1, 0)]


def test_a_batch_that_microbatches_cannot_divide_is_refused_by_name(splitting: Any) -> None:
    with pytest.raises(ValueError, match=r"The argument data\['ids'\] of a step has 5 examples, .* 2 microbatches"):
        splitting().split(step, (None, {"ids": torch.arange(5)}), {}, 2)


def test_results_of_microbatches_are_merged(output: Any) -> None:
    results = [(torch.tensor(float(at)), at, {"all": torch.arange(2) + at}, None) for at in range(3)]
    loss, numbers, named, nothing = output.merge_outputs(results)
    assert loss.reduce_mean().item() == 1.0
    assert loss.reduce_sum().item() == 3.0
    assert loss.stack().tolist() == [0.0, 1.0, 2.0]
    assert (len(loss), loss[2].item(), [each.item() for each in loss]) == (3, 2.0, [0.0, 1.0, 2.0])
    assert numbers == [0, 1, 2]
    assert named["all"].concat().tolist() == [0, 1, 1, 2, 2, 3]
    assert named["all"].reduce_mean().tolist() == [1.0, 2.0]
    assert nothing is None


def test_outputs_keep_their_graph_only_on_request(output: Any) -> None:
    made = torch.ones(1, requires_grad=True) * 2
    assert not output.merge_outputs([made])[0].requires_grad
    assert output.merge_outputs([made], detach=False)[0].requires_grad
