"""ListEngines: what runs the jobs of this yard, and which runs which."""

from collections.abc import Iterator

from trainyard.engines.choosing import Rule
from trainyard.engines.contract import Engine, Node
from trainyard.engines.several import Engines
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.line import machine_now


def list_engines(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - it has no members
    """The engines in the order of the settings, and the rules in the order in which they are asked."""
    workshop = call.yard.workshop
    told: Shape = {"Engines": [_engine(engine) for engine in workshop.engines], "Rules": []}
    try:
        rules = workshop.engine_rules.read()
    except InvalidRequest as error:
        return told | {"RulesProblem": error.message}
    return told | {"Rules": [_rule(rule, workshop.engines) for rule in rules]}


OPERATIONS: Operations = {"ListEngines": list_engines}


def _engine(engine: Engine) -> Shape:
    machine = machine_now(engine)
    return {
        "Name": engine.name,
        "Capabilities": [{"Name": name, "Reason": why or None} for name, why in _capabilities(engine)],
        "Nodes": [_node(node) for node in machine.nodes],
        "Obstacle": machine.obstacle or None,
    }


def _capabilities(engine: Engine) -> Iterator[tuple[str, str]]:
    """What an engine can do, and why not where it cannot. Isolation is harder for jobs of several instances."""
    able = engine.capabilities()
    why_not = engine.why_not_isolated(1)
    yield "isolation", why_not
    if not why_not:
        yield "isolation of several instances", engine.why_not_isolated(2)
    yield "limits", able.limits
    yield "gpus", able.gpus
    yield "warm workers", able.warm_workers
    yield "several nodes", able.several_nodes
    yield "images", able.images


def _node(node: Node) -> Shape:
    return {
        "Name": node.name,
        "Slots": node.slots,
        "Cpus": node.cpus,
        "MemoryBytes": node.memory_bytes,
        "Gpus": list(node.gpus),
        "Spot": node.is_spot,
    }


def _rule(rule: Rule, engines: Engines) -> Shape:
    return {"Engine": rule.engine, "Conditions": list(rule.conditions), "Known": rule.engine in engines}
