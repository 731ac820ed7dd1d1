"""Time that passes only as far as somebody waits for it."""

import asyncio
import time
from datetime import timedelta

from trainyard.testing.simulated_time import BEGINNING, SimulatedTime


def test_a_day_takes_no_time_and_things_happen_in_their_order() -> None:
    clock = SimulatedTime()
    happened: list[str] = []

    async def later(hours: float, what: str) -> None:
        await asyncio.sleep(hours * 3600)
        await asyncio.to_thread(happened.append, what)

    async def day() -> None:
        await asyncio.gather(later(24, "night"), later(8, "morning"), later(12, "noon"))

    begun = time.process_time()
    clock.run(day())

    assert happened == ["morning", "noon", "night"]
    assert clock() - BEGINNING >= timedelta(hours=24)
    assert clock() - BEGINNING < timedelta(hours=24, seconds=1)
    assert time.process_time() - begun < 5
