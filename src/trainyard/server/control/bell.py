"""How other threads tell the controllers that something has changed."""

import asyncio
from collections.abc import Callable

Listener = Callable[[str], None]


class Bell:
    """Carries the ids of jobs from any thread to the loop of the one who listens; with nobody there, nothing happens.

    A ring is a hint: whoever misses one finds out by itself a little later.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Call `listener` on the running loop with each id from now on."""
        self._listener, self._loop = listener, asyncio.get_running_loop()

    def silence(self) -> None:
        self._loop = None

    def ring(self, job_id: str) -> None:
        loop, listener = self._loop, self._listener
        if loop is not None and listener is not None and not loop.is_closed():
            loop.call_soon_threadsafe(listener, job_id)
