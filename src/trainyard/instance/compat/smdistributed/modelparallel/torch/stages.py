"""Cuts the graph of a model into the graphs of its stages."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .partition_plan import PartitionPlan
from .tracing import Untraceable, trace_model

# Random numbers and assertions belong to one stage only.
_RUN_ONCE = (torch._assert, torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.nn.functional.dropout)


@dataclass(frozen=True, slots=True)
class Stage:
    """What one rank runs. Its inputs are what the stage before sends, and the model's arguments by name."""

    module: fx.GraphModule
    inputs: frozenset[str]
    sends: tuple[str, ...]


def make_stages(model: torch.nn.Module, plan: PartitionPlan, *, given: Collection[str]) -> list[Stage]:
    """Make the stages for calls with these arguments, besides those without a default.

    The stages use the modules of the model itself, so they follow its mode and its weights.
    """
    try:
        graph = trace_model(model, plan.stages, given=given)
    except Untraceable as error:
        raise RuntimeError(f"The model cannot be split: {error}.") from error
    cut = _StageCutter(model, graph, plan)
    return [cut.stage(number) for number in range(plan.count)]


def find_holders(model: torch.nn.Module, stages: Iterable[Stage], *, default: int) -> dict[str, frozenset[int]]:
    """Return the stages that use each parameter and buffer, by name. The default stage holds those that none uses."""
    tensors = dict(all_tensors(model))
    users: dict[int, set[int]] = {}
    for number, stage in enumerate(stages):
        for tensor in (*stage.module.parameters(), *stage.module.buffers()):
            users.setdefault(id(tensor), set()).add(number)
    return {name: frozenset(users.get(id(tensor), {default})) for name, tensor in tensors.items()}


def all_tensors(model: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield parameters and buffers under all their names: one with two names occurs twice."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


class _StageCutter:
    def __init__(self, model: torch.nn.Module, graph: fx.Graph, plan: PartitionPlan) -> None:
        self._model = model
        self._plan = plan
        self._nodes = _without_checks(model, graph)
        self._inputs = {node: str(node.target) for node in self._nodes if node.op == "placeholder"}
        # Nodes that depend only on the model's arguments, so that every stage can compute them itself.
        self._free: set[fx.Node] = set()
        self._at: dict[fx.Node, int] = {}
        for node in self._nodes:
            self._assign(node)

    def stage(self, number: int) -> Stage:
        """Return one stage."""
        graph, known = fx.Graph(), {}
        for at, node in enumerate(self._crossing(number - 1)):
            known[node] = graph.placeholder(f"received_{at}")
        for node, name in self._inputs.items():
            known[node] = graph.placeholder(name, default_value=None)
        copied = _Copier(graph, known, can_copy=lambda node: node in self._free or node.op == "get_attr")
        for node in self._nodes:
            if self._at.get(node) == number and node.op != "output":
                copied(node)
        sends = self._crossing(number)
        graph.output(self._result(number, sends, copied))
        module = fx.GraphModule(self._model, graph)
        return Stage(module, frozenset(self._inputs.values()), tuple(node.name for node in sends))

    def _assign(self, node: fx.Node) -> None:
        """Assign a node to a stage. Earlier nodes have theirs already."""
        if node.op in ("placeholder", "get_attr"):
            return
        latest = max((self._at[each] for each in node.all_input_nodes if each in self._at), default=0)
        if node.op == "output":
            self._at[node] = self._plan.count - 1
        elif node.op == "call_module":
            self._at[node] = self._stage_of_module(str(node.target), latest)
        elif self._can_run_anywhere(node):
            self._free.add(node)
        else:
            self._at[node] = latest

    def _can_run_anywhere(self, node: fx.Node) -> bool:
        """Whether a node depends only on the model's arguments, so that every stage can compute it."""
        is_once = node.target in _RUN_ONCE
        return not is_once and all(each in self._free or each in self._inputs for each in node.all_input_nodes)

    def _stage_of_module(self, name: str, latest: int) -> int:
        if next(self._model.get_submodule(name).parameters(), None) is None:
            # A module without parameters goes where its input is.
            return latest
        own = self._plan.stages.get(name, self._plan.default)
        if own < latest:
            raise ValueError(
                f'"{name}" is in partition {own}, but its input comes from partition {latest}. A pipeline runs one '
                "way: assign modules to partitions in the order in which they are called, or set auto_partition."
            )
        return own

    def _crossing(self, number: int) -> list[fx.Node]:
        """Return the nodes that stages up to this one compute and later ones need."""
        if not 0 <= number < self._plan.count - 1:
            return []
        computed = [node for node in self._nodes if self._at.get(node, self._plan.count) <= number]
        return [node for node in computed if any(self._needs(user, number) for user in node.users)]

    def _needs(self, user: fx.Node, number: int) -> bool:
        return self._at.get(user, -1) > number

    def _result(self, number: int, sends: list[fx.Node], copied: "_Copier") -> Any:
        if number < self._plan.count - 1:
            return tuple(copied(node) for node in sends)
        (output,) = (node for node in self._nodes if node.op == "output")
        return fx.map_arg(output.args[0], copied)


def _without_checks(model: torch.nn.Module, graph: fx.Graph) -> list[fx.Node]:
    """Return all nodes except those that torch.fx adds to check that an argument still has its default value.

    Such an argument has another name in the graph, and nothing but checks depends on it.
    """
    named = inspect.signature(model.forward).parameters
    checks = {node for node in graph.nodes if node.op == "placeholder" and str(node.target) not in named}
    for node in graph.nodes:
        if any(each in checks for each in node.all_input_nodes):
            checks.add(node)
    return [node for node in graph.nodes if node not in checks]


class _Copier:
    """Copies nodes to another graph, with the nodes that they need and every stage can compute."""

    def __init__(
        self, graph: fx.Graph, known: Mapping[fx.Node, fx.Node], *, can_copy: Callable[[fx.Node], bool]
    ) -> None:
        self._graph = graph
        self._known = dict(known)
        self._can_copy = can_copy

    def __call__(self, node: fx.Node) -> fx.Node:
        if node not in self._known:
            self._known[node] = self._graph.node_copy(node, self._argument)
        return self._known[node]

    def _argument(self, node: fx.Node) -> fx.Node:
        assert node in self._known or self._can_copy(node), f"{node} belongs to another stage and was not sent"
        return self(node)
