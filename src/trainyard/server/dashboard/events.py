"""Server-sent events: what a page shows live.

Each event is a name and a JSON value. A browser that lost its connection asks again with the id of the last event that
it got, so a stream whose events have ids continues where it was.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse

from trainyard.server.dashboard.rendering import to_json

HEARTBEAT_S = 15.0
# How often a stream without events finds out whether its session has ended.
CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `id` lets the browser continue after it."""

    name: str
    value: Any
    id: str = ""


Events = AsyncGenerator[ServerEvent, None]


@dataclass(slots=True)
class OpenStreams:
    """The streams to browsers that are open. They would not end by themselves when the yard stops."""

    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    is_closed: bool = False

    def answer(self, events: Events, *, is_allowed: Callable[[], Awaitable[bool]]) -> StreamingResponse:
        """Return the response that sends these events until they end, the browser leaves, or it may not have them."""
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._send(events, is_allowed), media_type="text/event-stream", headers=headers)

    def close(self) -> None:
        """End every stream, also those that begin later. The pages connect again when the yard is back."""
        self.is_closed = True
        for task in self.tasks:
            task.cancel()

    async def _send(self, events: Events, is_allowed: Callable[[], Awaitable[bool]]) -> AsyncGenerator[str, None]:
        # Browsers wait three seconds before they connect again, unless told otherwise.
        yield "retry: 1000\n\n"
        waiting = asyncio.ensure_future(anext(events, None))
        quiet_s = 0.0
        try:
            while not self.is_closed:
                self.tasks.add(waiting)
                done, _ = await asyncio.wait({waiting}, timeout=CHECK_S)
                if not await is_allowed():
                    return
                if not done:
                    quiet_s += CHECK_S
                    if quiet_s >= HEARTBEAT_S:
                        yield ": still here\n\n"
                        quiet_s = 0.0
                    continue
                quiet_s = 0.0
                self.tasks.discard(waiting)
                event = None if waiting.cancelled() else waiting.result()
                if event is None:
                    return
                yield _text(event)
                waiting = asyncio.ensure_future(anext(events, None))
        finally:
            self.tasks.discard(waiting)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await waiting
            await events.aclose()


def _text(event: ServerEvent) -> str:
    number = f"id: {event.id}\n" if event.id else ""
    return f"{number}event: {event.name}\ndata: {to_json(event.value)}\n\n"
