"""Where long bodies are parsed: beside the loop, one at a time, and no account before all others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


class ParsingThread:
    """Runs what takes long in a thread of its own.

    Threads of Python share one processor, so that several would only make every other call wait longer. Of each account
    one body is in the queue and the others wait outside, so that an account that sends many does not hold up another.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._turns: dict[str, _Turn] = {}

    async def run(self, account: str, work: Callable[[], None]) -> None:
        turn = self._turns.setdefault(account, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[account]


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
