"""How other threads tell the controllers that something has changed."""

import asyncio
from collections.abc import Callable

Listener = Callable[[str], None]


class Bell:
    """Carries the ids of jobs from any thread to the loop of those who listen; with nobody there, nothing happens.

    A ring is a hint: whoever misses one finds out by itself a little later.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener` on the running loop with each id from now on."""
        self._listeners.append(listener)
        self._loop = asyncio.get_running_loop()

    def silence(self) -> None:
        self._loop = None

    def ring(self, job_id: str) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        for listener in self._listeners:
            loop.call_soon_threadsafe(listener, job_id)
