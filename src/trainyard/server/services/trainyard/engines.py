"""ListEngines: the engines of this yard, and the rules that assign jobs to them."""

from collections.abc import Iterator

from trainyard.engines.contract import Engine, Node
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.selection import EngineRule
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.queues import current_capacity


def list_engines(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """List the engines in the order of the settings, and the rules in the order in which they apply."""
    compute = call.yard.compute
    answer: Shape = {"Engines": [_engine(engine) for engine in compute.engines], "Rules": []}
    try:
        rules = compute.engine_rules.read()
    except InvalidRequest as error:
        return answer | {"RulesProblem": error.message}
    return answer | {"Rules": [_rule(rule, compute.engines) for rule in rules]}


OPERATIONS: Operations = {"ListEngines": list_engines}


def _engine(engine: Engine) -> Shape:
    capacity = current_capacity(engine)
    return {
        "Name": engine.name,
        "Capabilities": [{"Name": name, "Reason": why or None} for name, why in _capabilities(engine)],
        "Nodes": [_node(node) for node in capacity.nodes],
        "Obstacle": capacity.obstacle or None,
    }


def _capabilities(engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield the capabilities of an engine, each with the reason why it is missing, or ""."""
    capabilities = engine.capabilities()
    why_not = engine.why_not_isolated(1)
    yield "isolation", why_not
    if not why_not:
        yield "isolation of several instances", engine.why_not_isolated(2)
    yield "limits", capabilities.limits
    yield "gpus", capabilities.gpus
    yield "warm workers", capabilities.warm_workers
    yield "several nodes", capabilities.several_nodes
    yield "images", capabilities.images


def _node(node: Node) -> Shape:
    return {
        "Name": node.name,
        "Slots": node.slots,
        "Cpus": node.cpus,
        "MemoryBytes": node.memory_bytes,
        "Gpus": list(node.gpus),
        "Spot": node.is_spot,
    }


def _rule(rule: EngineRule, engines: EngineSet) -> Shape:
    return {"Engine": rule.engine, "Conditions": list(rule.conditions), "Known": rule.engine in engines}
