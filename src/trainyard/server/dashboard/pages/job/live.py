"""Sends what changes on the overview of a running job: sections of the page, and points of metrics."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.events import Events, ServerEvent
from trainyard.server.dashboard.pages.job.overview import read_overview
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault

# Points that come within this time are sent together.
_GATHER_S = 0.15
_MIN_INTERVAL_S = 1.5
# A page may take one part in this of a core.
_SHARE_OF_CORE = 300
_MAX_QUEUED = 64


async def watch_job(visit: Visit, asked: Shape) -> Events:
    """Yield the sections and the points of a job until it has ended. `asked` is the request of FollowMetrics."""
    queue: asyncio.Queue[ServerEvent | None] = asyncio.Queue(_MAX_QUEUED)
    has_ended = asyncio.Event()
    tasks = [
        asyncio.create_task(_send(queue, _point_events(visit, asked, has_ended))),
        asyncio.create_task(_send(queue, _state_events(visit, has_ended))),
    ]
    try:
        for _ in tasks:
            while (event := await queue.get()) is not None:
                yield event
        yield ServerEvent("end", {})
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send(queue: "asyncio.Queue[ServerEvent | None]", events: Events) -> None:
    async with contextlib.aclosing(events):
        try:
            async for event in events:
                await queue.put(event)
        except (ApiFault, Fault) as fault:
            await queue.put(ServerEvent("problem", {"message": fault.message}))
    await queue.put(None)


async def _state_events(visit: Visit, has_ended: asyncio.Event) -> Events:
    """Yield the sections that changed, at once when the job has ended."""
    sent: dict[str, str] = {}
    facts: Any = None
    while True:
        began, is_last = time.monotonic(), has_ended.is_set()
        overview = await read_overview(visit, now=visit.api.clock())
        changed = {name: html for name, html in overview.sections.items() if sent.get(name) != html}
        if changed or overview.facts != facts:
            yield ServerEvent("state", {"sections": changed, "facts": overview.facts})
        sent, facts = sent | changed, overview.facts
        if is_last or not overview.job.is_running:
            return
        pause_s = max(_MIN_INTERVAL_S, (time.monotonic() - began) * _SHARE_OF_CORE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(has_ended.wait(), pause_s)


async def _point_events(visit: Visit, asked: Shape, has_ended: asyncio.Event) -> Events:
    """Yield the points of all metrics. An event has what came within a moment, and as its id the cursor after it."""
    async with contextlib.aclosing(_batches(visit, asked)) as batches:
        async for lines in batches:
            points = [line for line in lines if line["kind"] == "points"]
            if points:
                yield ServerEvent("points", [compact_points(line) for line in points], id=points[-1]["cursor"])
    has_ended.set()


async def _batches(visit: Visit, asked: Shape) -> AsyncGenerator[list[dict[str, Any]], None]:
    lines = visit.api.lines("trainyard", "FollowMetrics", asked)
    waiting = asyncio.ensure_future(anext(lines, None))
    try:
        while True:
            gathered, until = [await waiting], time.monotonic() + _GATHER_S
            while gathered[-1] is not None:
                waiting = asyncio.ensure_future(anext(lines, None))
                done, _ = await asyncio.wait({waiting}, timeout=max(0, until - time.monotonic()))
                if not done:
                    break
                gathered.append(waiting.result())
            yield [line for line in gathered if line is not None]
            if gathered[-1] is None:
                return
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await waiting
        await lines.aclose()


def compact_points(line: dict[str, Any]) -> dict[str, Any]:
    """Return points as the page's script reads them: times in seconds."""
    return {
        "metric": line.get("metric", ""),
        "instance": line["instance"],
        "attempt": line["attempt"],
        "numbers": line["numbers"],
        "at": [at_us / 1e6 for at_us in line["at_us"]],
        "values": line["values"],
    }
