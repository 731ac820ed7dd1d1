"""The modules of each stage, and the tensors between stages."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.unit.instance.compat.modelparallel.networks import Network


@pytest.fixture
def part(import_compat: Callable[[str], ModuleType]) -> Callable[[str], Any]:
    """Import a module of the package by its last name."""
    return lambda name: import_compat(f"smdistributed.modelparallel.torch.{name}")


def planned(part: Callable[[str], Any], model: torch.nn.Module, **parameters: Any) -> Any:
    return part("partition_plan").make_plan(model, part("configuration").parse_parameters(parameters))


def through(stages: list[Any], **arguments: Any) -> Any:
    """Run the stages of a call one after the other."""
    found: Any = ()
    for stage in stages:
        found = stage.module(*found, **arguments)
    return found


def test_stages_hold_about_as_much_and_compute_what_the_model_does(part: Callable[[str], Any]) -> None:
    model, x = Network(), torch.randn(3, 4)
    plan = planned(part, model, partitions=2)
    stages = part("stages").make_stages(model, plan, given=())
    assert plan.stages == {"blocks.0": 0, "blocks.1": 0, "blocks.2": 1, "blocks.3": 1, "head": 1}
    expected, found = model(x), through(stages, x=x)
    assert torch.equal(found["logits"], expected["logits"])
    assert torch.equal(found["first"], expected["first"])
    assert len(stages[0].sends) == 1, "the input is there on all ranks"


def test_assertions_of_the_model_still_hold(part: Callable[[str], Any]) -> None:
    model = Network()
    stages = part("stages").make_stages(model, planned(part, model, partitions=2), given=())
    with pytest.raises(AssertionError, match=r"An assertion in .*networks.py, line \d+, failed"):
        through(stages, x=torch.randn(3, 5))


def test_an_argument_with_a_default_counts_when_it_is_given(part: Callable[[str], Any]) -> None:
    model, x, shift = Network(), torch.randn(3, 4), torch.ones(4)
    stages = part("stages").make_stages(model, planned(part, model, partitions=3), given={"shift"})
    assert torch.equal(through(stages, x=x, shift=shift)["logits"], model(x, shift=shift)["logits"])


def test_a_stage_holds_only_what_it_uses(part: Callable[[str], Any]) -> None:
    model = Network()
    model.unused = torch.nn.Linear(2, 2)
    plan = planned(part, model, partitions=2)
    stages = part("stages").make_stages(model, plan, given=())
    holders = part("stages").find_holders(model, stages, default=plan.default)
    assert holders["blocks.0.layer.weight"] == holders["unused.bias"] == {0}
    assert holders["head.weight"] == {1}


def test_modules_are_in_the_partitions_that_the_script_marked(part: Callable[[str], Any]) -> None:
    marks = part("marks")
    with marks.partition(1):
        inner = torch.nn.Linear(4, 4)
        with marks.partition(0):
            first = torch.nn.Linear(4, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), first, inner, torch.nn.ReLU(), torch.nn.Linear(4, 4))
    marks.set_partition(model[4], 1)
    plan = planned(part, model, partitions=2, auto_partition=False)
    assert plan.stages == {"0": 0, "1": 0, "2": 1, "3": 0, "4": 1}
    x = torch.randn(2, 4)
    assert torch.equal(through(part("stages").make_stages(model, plan, given=()), input=x), model(x))


def test_a_partition_that_does_not_exist_is_reported(part: Callable[[str], Any]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    part("marks").set_partition(model[1], 5)
    with pytest.raises(ValueError, match='"1" is in partition 5; there are 2, from 0'):
        planned(part, model, partitions=2, auto_partition=False)


def test_marks_apply_only_to_modules_created_within(part: Callable[[str], Any]) -> None:
    marks = part("marks")
    with marks.tensor_parallelism():
        within = torch.nn.Linear(2, 2)
        with marks.tensor_parallelism(enabled=False):
            excepted = torch.nn.Linear(2, 2)
    assert [marks.is_split(each) for each in (within, excepted, torch.nn.Linear(2, 2))] == [True, False, False]


def test_a_model_is_made_in_another_type_and_without_memory(part: Callable[[str], Any]) -> None:
    marks = part("marks")
    with marks.model_creation(tensor_parallelism=True, dtype=torch.float64):
        made = torch.nn.Linear(2, 2)
    assert (made.weight.dtype, made.weight.is_meta, marks.is_split(made)) == (torch.float64, True, True)
    assert torch.get_default_dtype() is torch.float32
    part("parameter_registry").initialize_tensors(made, {"weight", "bias"}, torch.device("cpu"))
    assert made.weight.isfinite().all()
    assert not made.weight.is_meta


def test_a_model_that_takes_any_arguments_cannot_be_split(part: Callable[[str], Any]) -> None:
    class Open(Network):
        def forward(self, *everything: torch.Tensor) -> Any:  # type: ignore[override]
            return super().forward(everything[0])

    with pytest.raises(RuntimeError, match=r"the model takes variable arguments \(everything\)"):
        planned(part, Open(), partitions=2)


def test_released_tensors_free_their_memory(part: Callable[[str], Any]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    old = model[0].weight
    registry = part("parameter_registry").ParameterRegistry()
    part("parameter_registry").release_tensors(model, ["0.weight", "1.running_mean"], registry)
    assert old.untyped_storage().nbytes() == 0
    assert (model[0].weight.is_meta, model[0].weight.shape, model[1].running_mean.is_meta) == (True, (4, 4), True)
    assert registry.replacement(old) is None
    assert registry.replacement(model[0].bias) is model[0].bias
