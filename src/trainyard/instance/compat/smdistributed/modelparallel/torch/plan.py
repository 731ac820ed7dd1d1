"""Which stage of the pipeline has which module."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from .balance import cut, largest
from .configuration import Configuration
from .marks import partition_of
from .tracing import Untraceable, modules_at, traced

_GOOD = 1.1  # times the mean: a largest stage that is not worth looking deeper for


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages by the names of modules; none of those is below another."""

    stages: Mapping[str, int]
    count: int
    default: int = 0


def plan_for(model: torch.nn.Module, configuration: Configuration) -> Plan:
    """As the script has said where it made the modules, or so that all stages hold about as much."""
    if configuration.auto_partition:
        return _balanced(model, configuration.pipeline_degree)
    plan = _as_marked(model, configuration)
    empty = sorted(set(range(plan.count)) - set(plan.stages.values()))
    if empty:
        raise ValueError(
            f"No module is in partition {empty[0]} of {plan.count}; make some within smp.partition({empty[0]}), or set "
            "auto_partition."
        )
    return plan


def _as_marked(model: torch.nn.Module, configuration: Configuration) -> Plan:
    default = configuration.default_partition
    stages = dict(_uniform("", model, default))
    wrong = [name for name, stage in stages.items() if not 0 <= stage < configuration.pipeline_degree]
    if wrong:
        raise ValueError(
            f'"{wrong[0]}" is in partition {stages[wrong[0]]}; there are {configuration.pipeline_degree}, from 0.'
        )
    return Plan(stages, configuration.pipeline_degree, default)


def _uniform(name: str, module: torch.nn.Module, default: int) -> Iterator[tuple[str, int]]:
    """The largest modules that are in one partition with all that is below them."""
    stages = {partition_of(each, default) for each in module.modules() if name or each is not module}
    if len(stages) == 1 and name:
        yield name, stages.pop()
        return
    for child_name, child in module.named_children():
        yield from _uniform(f"{name}.{child_name}" if name else child_name, child, default)


def _balanced(model: torch.nn.Module, count: int) -> Plan:
    best: tuple[int, Plan] | None = None
    problem = "it has too few modules"
    seen: list[str] = []
    for depth in range(1, 100):
        names = modules_at(model, depth)
        if names == seen:
            break
        seen = names
        try:
            row = _called(model, names)
        except Untraceable as error:
            problem = str(error)
            break
        if len(row) < count:
            continue
        numbers = cut(list(row.values()), count)
        size = largest(list(row.values()), numbers)
        if best is None or size < best[0]:
            best = size, Plan(dict(zip(row, numbers, strict=True)), count)
        if size * count <= _GOOD * sum(row.values()):
            break
    if best is None:
        raise RuntimeError(
            f"The model cannot be split into {count} partitions: {problem}. Its own forward must call its modules one "
            "after another, without looking at values; what looks at values goes into a module of its own."
        )
    return best[1]


def _called(model: torch.nn.Module, names: list[str]) -> dict[str, int]:
    """The modules in the order in which they are first called, with the bytes of their parameters."""
    calls = (node.target for node in traced(model, names, given=()).nodes if node.op == "call_module")
    counted: set[int] = set()
    found: dict[str, int] = {}
    for name in dict.fromkeys(calls):
        own = {id(each): each for each in model.get_submodule(name).parameters() if id(each) not in counted}
        counted |= own.keys()
        found[name] = sum(each.numel() * each.element_size() for each in own.values())
    return found
