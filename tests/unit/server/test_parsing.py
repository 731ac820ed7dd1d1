import asyncio
import threading

from trainyard.server.parsing import ParsingThread


def test_an_account_that_sends_many_bodies_does_not_hold_up_another() -> None:
    done: list[str] = []
    gate = threading.Event()

    async def scenario() -> None:
        parsing = ParsingThread()
        many = [asyncio.create_task(parsing.run("many", lambda: _work("many"))) for _ in range(10)]
        await asyncio.sleep(0)
        one = asyncio.create_task(parsing.run("one", lambda: _work("one")))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*many, one)

    def _work(account: str) -> None:
        assert gate.wait(30)
        done.append(account)

    asyncio.run(scenario())
    assert done == ["many", "one", *["many"] * 9]
