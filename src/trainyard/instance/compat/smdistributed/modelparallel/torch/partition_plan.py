"""Assigns modules to the stages of the pipeline, as the script marked them or balanced by size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from .configuration import Configuration
from .marks import partition_of
from .tracing import Untraceable, modules_at, trace_model

# If the largest stage is at most this many times the mean, deeper modules are not tried.
_GOOD_BALANCE = 1.1


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The stage of each module by its name. No module is inside another."""

    stages: Mapping[str, int]
    count: int
    default: int = 0


def make_plan(model: torch.nn.Module, configuration: Configuration) -> PartitionPlan:
    """Plan the stages as the script marked its modules, or so that all hold about as much."""
    if configuration.auto_partition:
        return _plan_balanced(model, configuration.pipeline_degree)
    plan = _plan_as_marked(model, configuration)
    empty = sorted(set(range(plan.count)) - set(plan.stages.values()))
    if empty:
        raise ValueError(
            f"No module is in partition {empty[0]} of {plan.count}; create some within smp.partition({empty[0]}), or "
            "set auto_partition."
        )
    return plan


def _plan_as_marked(model: torch.nn.Module, configuration: Configuration) -> PartitionPlan:
    default = configuration.default_partition
    stages = dict(_uniform("", model, default))
    wrong = [name for name, stage in stages.items() if not 0 <= stage < configuration.pipeline_degree]
    if wrong:
        raise ValueError(
            f'"{wrong[0]}" is in partition {stages[wrong[0]]}; there are {configuration.pipeline_degree}, from 0 on.'
        )
    return PartitionPlan(stages, configuration.pipeline_degree, default)


def _uniform(name: str, module: torch.nn.Module, default: int) -> Iterator[tuple[str, int]]:
    """Yield the largest modules that are in one partition with everything inside them."""
    stages = {partition_of(each, default) for each in module.modules() if name or each is not module}
    if len(stages) == 1 and name:
        yield name, stages.pop()
        return
    for child_name, child in module.named_children():
        yield from _uniform(f"{name}.{child_name}" if name else child_name, child, default)


def _plan_balanced(model: torch.nn.Module, count: int) -> PartitionPlan:
    best: tuple[int, PartitionPlan] | None = None
    problem = "it has too few modules"
    seen: list[str] = []
    for depth in range(1, 100):
        names = modules_at(model, depth)
        if names == seen:
            break
        seen = names
        try:
            row = _call_order(model, names)
        except Untraceable as error:
            problem = str(error)
            break
        if len(row) < count:
            continue
        numbers = balanced_cut(list(row.values()), count)
        size = largest_part(list(row.values()), numbers)
        if best is None or size < best[0]:
            best = size, PartitionPlan(dict(zip(row, numbers, strict=True)), count)
        if size * count <= _GOOD_BALANCE * sum(row.values()):
            break
    if best is None:
        raise RuntimeError(
            f"The model cannot be split into {count} partitions: {problem}. Its own forward must call its modules one "
            "after another, without depending on values; move code that does into a module of its own."
        )
    return best[1]


def _call_order(model: torch.nn.Module, names: list[str]) -> dict[str, int]:
    """Return the modules in the order of their first call, with the size of their parameters in bytes."""
    calls = (node.target for node in trace_model(model, names, given=()).nodes if node.op == "call_module")
    counted: set[int] = set()
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(calls):
        own = {id(each): each for each in model.get_submodule(name).parameters() if id(each) not in counted}
        counted |= own.keys()
        sizes[name] = sum(each.numel() * each.element_size() for each in own.values())
    return sizes


def balanced_cut(sizes: Sequence[int], parts: int) -> list[int]:
    """Return the part of each layer: parts are contiguous, none is empty, and the largest is as small as possible.

    Among cuts with the same largest part, earlier parts are filled up to its size.
    """
    if len(sizes) < parts:
        raise ValueError(f"{len(sizes)} layers cannot be cut into {parts} parts.")
    bound = _smallest_bound(sizes, parts)
    numbers: list[int] = []
    number = filled = 0
    for at, size in enumerate(sizes):
        left = len(sizes) - at
        # One layer is left for each part that is still empty.
        must = left == parts - number - 1
        if numbers and (must or filled + size > bound) and number < parts - 1:
            number, filled = number + 1, 0
        numbers.append(number)
        filled += size
    return numbers


def largest_part(sizes: Sequence[int], numbers: Sequence[int]) -> int:
    """Return the size of the largest part."""
    totals: dict[int, int] = {}
    for size, number in zip(sizes, numbers, strict=True):
        totals[number] = totals.get(number, 0) + size
    return max(totals.values())


def _smallest_bound(sizes: Sequence[int], parts: int) -> int:
    low, high = max(sizes), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if _parts_within(sizes, middle) <= parts:
            high = middle
        else:
            low = middle + 1
    return low


def _parts_within(sizes: Sequence[int], bound: int) -> int:
    count, filled = 1, 0
    for size in sizes:
        if filled + size > bound:
            count, filled = count + 1, 0
        filled += size
    return count
