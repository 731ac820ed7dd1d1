"""The graph of a model, cut into the graphs of its stages."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .plan import Plan
from .tracing import Untraceable, traced

_ONCE = (torch._assert, torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.nn.functional.dropout)


@dataclass(frozen=True, slots=True)
class Stage:
    """What one rank runs: it takes what the stage before sends, and by name the arguments of the model it needs."""

    module: fx.GraphModule
    inputs: frozenset[str]
    sends: tuple[str, ...]


def stages_of(model: torch.nn.Module, plan: Plan, *, given: Collection[str]) -> list[Stage]:
    """The stages for calls that give the model these arguments beside those that have no default.

    The modules of the stages are those of the model itself, so they follow its modes and its weights.
    """
    try:
        graph = traced(model, plan.stages, given=given)
    except Untraceable as error:
        raise RuntimeError(f"The model cannot be split: {error}.") from error
    cut = _Cut(model, graph, plan)
    return [cut.stage(number) for number in range(plan.count)]


def holders_of(model: torch.nn.Module, stages: Iterable[Stage], *, default: int) -> dict[str, frozenset[int]]:
    """By the name of each parameter and buffer the stages that use it; one that none uses is in the default stage."""
    tensors = dict(all_tensors(model))
    users: dict[int, set[int]] = {}
    for number, stage in enumerate(stages):
        for tensor in (*stage.module.parameters(), *stage.module.buffers()):
            users.setdefault(id(tensor), set()).add(number)
    return {name: frozenset(users.get(id(tensor), {default})) for name, tensor in tensors.items()}


def all_tensors(model: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Parameters and buffers by all their names: one that has two is there twice."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


class _Cut:
    def __init__(self, model: torch.nn.Module, graph: fx.Graph, plan: Plan) -> None:
        self._model = model
        self._plan = plan
        self._nodes = _without_checks(model, graph)
        self._inputs = {node: str(node.target) for node in self._nodes if node.op == "placeholder"}
        self._free: set[fx.Node] = set()  # those that every stage can make for itself, from the model's arguments
        self._at: dict[fx.Node, int] = {}
        for node in self._nodes:
            self._assign(node)

    def stage(self, number: int) -> Stage:
        """The graph of one stage."""
        graph, known = fx.Graph(), {}
        for at, node in enumerate(self._crossing(number - 1)):
            known[node] = graph.placeholder(f"received_{at}")
        for node, name in self._inputs.items():
            known[node] = graph.placeholder(name, default_value=None)
        copied = _Copier(graph, known, can_make=lambda node: node in self._free or node.op == "get_attr")
        for node in self._nodes:
            if self._at.get(node) == number and node.op != "output":
                copied(node)
        sends = self._crossing(number)
        graph.output(self._result(number, sends, copied))
        module = fx.GraphModule(self._model, graph)
        return Stage(module, frozenset(self._inputs.values()), tuple(node.name for node in sends))

    def _assign(self, node: fx.Node) -> None:
        """Find the stage of a node; those before it have theirs."""
        if node.op in ("placeholder", "get_attr"):
            return
        latest = max((self._at[each] for each in node.all_input_nodes if each in self._at), default=0)
        if node.op == "output":
            self._at[node] = self._plan.count - 1
        elif node.op == "call_module":
            self._at[node] = self._stage_of_module(str(node.target), latest)
        elif self._can_be_made_anywhere(node):
            self._free.add(node)
        else:
            self._at[node] = latest

    def _can_be_made_anywhere(self, node: fx.Node) -> bool:
        """Whether it comes of the model's arguments alone; assertions are for one stage, and so are random numbers."""
        is_once = node.target in _ONCE
        return not is_once and all(each in self._free or each in self._inputs for each in node.all_input_nodes)

    def _stage_of_module(self, name: str, latest: int) -> int:
        if next(self._model.get_submodule(name).parameters(), None) is None:
            return latest  # what has nothing to hold goes where its input is
        own = self._plan.stages.get(name, self._plan.default)
        if own < latest:
            raise ValueError(
                f'"{name}" is in partition {own}, but what it works on comes from partition {latest}. A pipeline goes '
                "one way: give modules partitions in the order in which they are called, or set auto_partition."
            )
        return own

    def _crossing(self, number: int) -> list[fx.Node]:
        """What stages up to this one have made and later ones need."""
        if not 0 <= number < self._plan.count - 1:
            return []
        made = [node for node in self._nodes if self._at.get(node, self._plan.count) <= number]
        return [node for node in made if any(self._needs(user, number) for user in node.users)]

    def _needs(self, user: fx.Node, number: int) -> bool:
        return self._at.get(user, -1) > number

    def _result(self, number: int, sends: list[fx.Node], copied: "_Copier") -> Any:
        if number < self._plan.count - 1:
            return tuple(copied(node) for node in sends)
        (output,) = (node for node in self._nodes if node.op == "output")
        return fx.map_arg(output.args[0], copied)


def _without_checks(model: torch.nn.Module, graph: fx.Graph) -> list[fx.Node]:
    """All nodes but those that torch.fx adds to check that an argument which it took as its default still is that.

    Such an argument is called otherwise in the graph, and nothing but checks depends on it.
    """
    named = inspect.signature(model.forward).parameters
    checks = {node for node in graph.nodes if node.op == "placeholder" and str(node.target) not in named}
    for node in graph.nodes:
        if any(each in checks for each in node.all_input_nodes):
            checks.add(node)
    return [node for node in graph.nodes if node not in checks]


class _Copier:
    """Copies nodes into another graph, and with them what they need and every stage can make."""

    def __init__(
        self, graph: fx.Graph, known: Mapping[fx.Node, fx.Node], *, can_make: Callable[[fx.Node], bool]
    ) -> None:
        self._graph = graph
        self._known = dict(known)
        self._can_make = can_make

    def __call__(self, node: fx.Node) -> fx.Node:
        if node not in self._known:
            self._known[node] = self._graph.node_copy(node, self._argument)
        return self._known[node]

    def _argument(self, node: fx.Node) -> fx.Node:
        assert node in self._known or self._can_make(node), f"{node} is of another stage and was not sent"
        return self(node)
