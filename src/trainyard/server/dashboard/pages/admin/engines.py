"""The engines of the yard, the use of their nodes, and the warm workers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.events import Events, ServerEvent
from trainyard.server.dashboard.pages.admin.section import render_section
from trainyard.server.services.contract import Shape

_INTERVAL_S = 2.0


async def show_engines(visit: Visit) -> Response:
    engines, yard = await asyncio.gather(
        visit.api.call("trainyard", "ListEngines"), visit.api.call("trainyard", "DescribeYard")
    )
    return render_section(
        visit,
        "engines",
        engines=[_engine(each, yard) for each in engines["Engines"]],
        rules=engines["Rules"],
        rules_problem=engines.get("RulesProblem", ""),
        default=yard["Engine"],
        workers=yard["WarmWorkers"],
    )


async def follow_engines(visit: Visit) -> Response:
    return visit.events(_follow(visit))


async def _follow(visit: Visit) -> Events:
    """Say that the page shows something old, whenever the use of a node or a warm worker has changed."""
    known: Any = None
    while True:
        yard = await visit.api.call("trainyard", "DescribeYard")
        now = (yard["Lines"], yard["WarmWorkers"])
        if known is not None and now != known:
            yield ServerEvent("changed", {})
        known = now
        await asyncio.sleep(_INTERVAL_S)


def _engine(engine: Shape, yard: Shape) -> dict[str, Any]:
    queue = next((each for each in yard["Lines"] if engine["Name"] in each["Engines"]), None)
    nodes: Sequence[Shape] = queue["Nodes"] if queue else ()
    return {
        "name": engine["Name"],
        "obstacle": engine.get("Obstacle", ""),
        "capabilities": engine["Capabilities"],
        "nodes": nodes,
        "shares_with": [each for each in queue["Engines"] if each != engine["Name"]] if queue else [],
        "waiting": queue["QueuedJobs"] if queue else 0,
    }
